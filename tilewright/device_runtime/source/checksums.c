/* CRC-32 and SHA-256, as checksums of what lies in files. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

uint32_t tw_crc32(const void *data, size_t size) {
  /* Tables for four bytes at a time; they are the same whoever makes them. */
  static uint32_t tables[4][256];
  static int are_made;
  if (!__atomic_load_n(&are_made, __ATOMIC_ACQUIRE)) {
    for (uint32_t k = 0; k < 256; k++) {
      uint32_t value = k;
      for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (0xedb88320u & -(value & 1));
      tables[0][k] = value;
    }
    for (uint32_t k = 0; k < 256; k++)
      for (int t = 1; t < 4; t++)
        tables[t][k] = tables[t - 1][k] >> 8 ^ tables[0][tables[t - 1][k] & 255];
    __atomic_store_n(&are_made, 1, __ATOMIC_RELEASE);
  }
  const uint8_t *at = data;
  uint32_t crc = ~0u;
  for (; size >= 4; size -= 4, at += 4) {
    crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    crc = tables[3][crc & 255] ^ tables[2][crc >> 8 & 255] ^ tables[1][crc >> 16 & 255] ^
          tables[0][crc >> 24];
  }
  for (; size; size--, at++) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
  return ~crc;
}

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t value, int count) { return value >> count | value << (32 - count); }

static void add_block(uint32_t *state, const uint8_t *block) {
  uint32_t w[64], s[8];
  for (int k = 0; k < 16; k++)
    w[k] = (uint32_t)block[4 * k] << 24 | (uint32_t)block[4 * k + 1] << 16 |
           (uint32_t)block[4 * k + 2] << 8 | block[4 * k + 3];
  for (int k = 16; k < 64; k++) {
    uint32_t a = w[k - 15], b = w[k - 2];
    w[k] = w[k - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[k - 7] +
           (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (int k = 0; k < 64; k++) {
    uint32_t e = s[4], a = s[0];
    uint32_t one = s[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                   ((e & s[5]) ^ (~e & s[6])) + constants[k] + w[k];
    uint32_t two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
                   ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += one;
    s[0] = one + two;
  }
  for (int k = 0; k < 8; k++) state[k] += s[k];
}

void tw_sha256_hex(const void *data, size_t size, char digits[65]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *at = data;
  size_t left = size;
  for (; left >= 64; left -= 64, at += 64) add_block(state, at);
  uint8_t last[128] = {0};
  if (left) memcpy(last, at, left);
  last[left] = 0x80;
  size_t end = left < 56 ? 64 : 128;
  for (int k = 0; k < 8; k++) last[end - 1 - (size_t)k] = (uint8_t)((uint64_t)size * 8 >> (8 * k));
  add_block(state, last);
  if (end == 128) add_block(state, last + 64);
  for (int k = 0; k < 8; k++) snprintf(digits + 8 * k, 9, "%08x", (unsigned)state[k]);
}
