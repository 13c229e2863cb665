/* Messages on a serial line: SLIP (RFC 1055) between the bytes and the messages, so that a receiver
   finds the next message whatever came before, and a CRC-32 in each. */
#include "monitor.h"

enum { END = 0xc0, ESCAPE = 0xdb, ESCAPED_END = 0xdc, ESCAPED_ESCAPE = 0xdd };

/* The CRC-32 of Ethernet and zlib, by four bits at a time. */
static uint32_t check_of(const uint8_t *data, uint32_t size) {
  static const uint32_t table[16] = {
      0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
      0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
      0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  uint32_t check = 0xffffffffu;
  for (uint32_t k = 0; k < size; k++) {
    check ^= data[k];
    check = check >> 4 ^ table[check & 15];
    check = check >> 4 ^ table[check & 15];
  }
  return ~check;
}

static uint32_t word_at(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The bytes up to the next END; more than fit, or a wrong escape, make it none. */
static uint32_t receive_frame(uint8_t *to, uint32_t room) {
  uint32_t size = 0;
  int is_escaped = 0, is_damaged = 0;
  for (;;) {
    uint8_t byte = line_read();
    if (byte == END) return is_damaged || is_escaped ? 0 : size;
    if (byte == ESCAPE) {
      is_damaged |= is_escaped;
      is_escaped = 1;
      continue;
    }
    if (is_escaped) {
      is_damaged |= byte != ESCAPED_END && byte != ESCAPED_ESCAPE;
      byte = byte == ESCAPED_END ? END : ESCAPE;
      is_escaped = 0;
    }
    if (size < room) to[size++] = byte;
    else is_damaged = 1;
  }
}

uint32_t receive_message(struct message *message) {
  uint8_t *bytes = (uint8_t *)message;
  for (;;) {
    uint32_t size = receive_frame(bytes, sizeof *message);
    if (size < HEAD_BYTES + CHECK_BYTES || message->zero) continue;
    if (message->length != size - HEAD_BYTES - CHECK_BYTES) continue;
    uint32_t check = word_at(bytes + size - CHECK_BYTES);
    if (check == check_of(bytes, size - CHECK_BYTES)) return check;
  }
}

static void send_byte(uint8_t byte) {
  if (byte == END || byte == ESCAPE) {
    line_write(ESCAPE);
    byte = byte == END ? ESCAPED_END : ESCAPED_ESCAPE;
  }
  line_write(byte);
}

void send_message(struct message *message) {
  const uint8_t *bytes = (const uint8_t *)message;
  uint32_t size = HEAD_BYTES + message->length, check = check_of(bytes, size);
  line_write(END);
  for (uint32_t k = 0; k < size; k++) send_byte(bytes[k]);
  for (uint32_t k = 0; k < CHECK_BYTES; k++) send_byte((uint8_t)(check >> 8 * k));
  line_write(END);
}
