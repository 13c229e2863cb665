/* Messages over an encrypted connection: a prefix, a JSON object, and a body. */
#include <string.h>

#include "serve.h"

enum { PREFIX = 20 };

static uint64_t big_endian(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes--) value = value << 8 | *at++;
  return value;
}

bool tw_message_send(tw_channel *channel, uint8_t kind, uint32_t number, const char *header,
                     uint64_t body) {
  uint8_t head[PREFIX] = {kind};
  size_t size = strlen(header);
  for (int k = 0; k < 4; k++) head[4 + k] = (uint8_t)(number >> (24 - 8 * k));
  for (int k = 0; k < 4; k++) head[8 + k] = (uint8_t)((uint64_t)size >> (24 - 8 * k));
  for (int k = 0; k < 8; k++) head[12 + k] = (uint8_t)(body >> (56 - 8 * k));
  return tw_channel_write(channel, head, sizeof head) &&
         tw_channel_write(channel, header, size);
}

const tw_json *tw_message_receive(tw_channel *channel, tw_arena *arena, tw_prefix *found,
                                  uint64_t body_limit, double patience, int *code) {
  uint8_t head[PREFIX];
  int missing = tw_channel_read(channel, head, sizeof head, patience);
  if (missing) return *code = missing == 2 ? ENDED_IDLE : CLOSED, NULL;
  *found = (tw_prefix){head[0], (uint32_t)big_endian(head + 4, 4), big_endian(head + 8, 4),
                    big_endian(head + 12, 8)};
  *code = ENDED_DAMAGED;
  bool is_good = found->kind >= REQUEST && found->kind <= ALIVE && !big_endian(head + 1, 3) &&
                 found->header <= HEADER_LIMIT && found->body <= body_limit;
  char *text = is_good ? tw_take(arena, (size_t)found->header + 1, 1) : NULL;
  if (!text) return NULL;
  if (tw_channel_read(channel, text, (size_t)found->header, PATIENCE_SECONDS))
    return *code = CLOSED, NULL;
  const tw_json *header = tw_json_read(arena, text, (size_t)found->header);
  return header && header->kind == TW_OBJECT ? header : NULL;
}

static int hex_value(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool tw_proof_in(const tw_json *header, uint8_t proof[PROOF_BYTES]) {
  const char *text = tw_json_text(header, "proof");
  if (!text || strlen(text) != 2 * PROOF_BYTES) return false;
  for (int k = 0; k < PROOF_BYTES; k++) {
    int high = hex_value(text[2 * k]), low = hex_value(text[2 * k + 1]);
    if (high < 0 || low < 0) return false;
    proof[k] = (uint8_t)(high * 16 + low);
  }
  return true;
}

void tw_print_hex(tw_text *text, const uint8_t *data, size_t size) {
  for (size_t k = 0; k < size; k++) tw_text_print(text, "%02x", data[k]);
}
