/* Artifacts that are used only if somebody who is trusted signed them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "signing.h"

/* ---- keys ------------------------------------------------------------------------------------- */

enum { KEY_FILE = 4096, DER_BYTES = 44 };
static const char begin_line[] = "-----BEGIN PUBLIC KEY-----";
/* What stands before the key in DER: that it is one of Ed25519. */
static const uint8_t der_prefix[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                     0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

/* The bytes of base64 up to the line that ends it; how many there are, -1 for too many. */
static int decode(const char *text, uint8_t *bytes, int room) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = 0;
  int held = 0, count = 0;
  for (; *text && *text != '-'; text++) {
    const char *digit = strchr(digits, *text);
    if (!digit) continue;
    bits = bits << 6 | (uint32_t)(digit - digits);
    held += 6;
    if (held < 8) continue;
    if (count == room) return -1;
    held -= 8;
    bytes[count++] = (uint8_t)(bits >> held);
  }
  return count;
}

static bool read_key(const char *path, uint8_t key[TW_KEY_BYTES], tw_error *error) {
  char text[KEY_FILE + 1];
  uint8_t der[DER_BYTES];
  FILE *file = fopen(path, "rb");
  if (!file) return tw_fail(error, "cannot trust %s: %s", path, strerror(errno));
  size_t size = fread(text, 1, KEY_FILE, file);
  fclose(file);
  text[size] = 0;
  if (size == TW_KEY_BYTES) return memcpy(key, text, TW_KEY_BYTES), true;
  const char *begin = strlen(text) == size ? strstr(text, begin_line) : NULL;
  if (!begin || decode(begin + sizeof begin_line - 1, der, DER_BYTES) != DER_BYTES ||
      memcmp(der, der_prefix, sizeof der_prefix))
    return tw_fail(error, "cannot trust %s: it holds no public key of Ed25519", path);
  memcpy(key, der + sizeof der_prefix, TW_KEY_BYTES);
  return true;
}

bool tw_trust_add(tw_trust *trust, const char *path, tw_error *error) {
  if (trust->count == TW_MOST_KEYS)
    return tw_fail(error, "no more than %d keys can be trusted", TW_MOST_KEYS);
  if (!read_key(path, trust->keys[trust->count], error)) return false;
  trust->count++;
  return true;
}

/* ---- what is signed --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  return strcmp((*(const tw_member *const *)a)->name, (*(const tw_member *const *)b)->name);
}

/* The digests of all members but the signature, by name. */
static bool signed_text(tw_text *text, const tw_container *container, tw_arena *arena) {
  const tw_member **members = tw_take(arena, container->count + 1, sizeof *members);
  if (!members) return false;
  for (size_t k = 0; k < container->count; k++) members[k] = &container->members[k];
  qsort(members, container->count, sizeof *members, by_name);
  tw_text_print(text, "tilewright artifact 1\n");
  for (size_t k = 0; k < container->count; k++) {
    char digits[65];
    if (!strcmp(members[k]->name, TW_SIGNATURE)) continue;
    tw_sha256_hex(members[k]->data, members[k]->size, digits);
    tw_text_print(text, "%s %s\n", members[k]->name, digits);
  }
  return !text->failed;
}

bool tw_trust_covers(const tw_trust *trust, const tw_container *container, tw_arena *arena,
                     tw_error *error) {
  const tw_member *signature = tw_container_find(container, TW_SIGNATURE);
  if (!signature) return tw_fail(error, "it is not signed");
  tw_text text = {0};
  bool is_covered = false, is_made = signed_text(&text, container, arena);
  for (int32_t k = 0; is_made && k < trust->count; k++)
    is_covered = is_covered ||
                 (signature->size == TW_SIGNATURE_BYTES &&
                  tw_ed25519_holds(signature->data, trust->keys[k], text.data, text.size));
  tw_text_free(&text);
  if (!is_made) return tw_no_memory(error);
  return is_covered || tw_fail(error, "no key that is trusted signed it as it is");
}
