/* Signatures by Ed25519 (RFC 8032), which are checked here and made elsewhere. */
#ifndef TILEWRIGHT_SIGNING_H
#define TILEWRIGHT_SIGNING_H

#include "../internal.h"

enum { TW_SIGNATURE_BYTES = 64 };

typedef struct tw_sha512 {
  uint64_t state[8];
  uint8_t block[128];
  uint64_t size;
} tw_sha512;
void tw_sha512_begin(tw_sha512 *hash);
void tw_sha512_add(tw_sha512 *hash, const void *data, size_t size);
void tw_sha512_end(tw_sha512 *hash, uint8_t digest[64]);

/* Whether the owner of a public key signed a text. */
bool tw_ed25519_holds(const uint8_t signature[TW_SIGNATURE_BYTES], const uint8_t key[TW_KEY_BYTES],
                      const void *text, size_t size);

#endif
