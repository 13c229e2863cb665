/* Ed25519: checks signatures, by the arithmetic of TweetNaCl (Bernstein, van Gastel, Janssen, Lange,
   Schwabe, Smetsers; public domain).

   Nothing here is secret, so that nothing need take the same time for all values. */
#include <string.h>

#include "signing.h"

/* A number modulo 2^255 - 19, by sixteen digits of 16 bits, which may be out of range. */
typedef int64_t field[16];
/* X, Y, Z and T, with x = X / Z, y = Y / Z and x y = T / Z. */
typedef field point[4];

static const field zero = {0}, one = {1};
/* d of the curve -x^2 + y^2 = 1 + d x^2 y^2, and twice as much; the root of -1. */
static const field curve_d = {
    0x78a3, 0x1359, 0x4dca, 0x75eb, 0xd8ab, 0x4141, 0x0a4d, 0x0070,
    0xe898, 0x7779, 0x4079, 0x8cc7, 0xfe73, 0x2b6f, 0x6cee, 0x5203,
};
static const field twice_d = {
    0xf159, 0x26b2, 0x9b94, 0xebd6, 0xb156, 0x8283, 0x149a, 0x00e0,
    0xd130, 0xeef3, 0x80f2, 0x198e, 0xfce7, 0x56df, 0xd9dc, 0x2406,
};
static const field root = {
    0xa0b0, 0x4a0e, 0x1b27, 0xc4ee, 0xe478, 0xad2f, 0x1806, 0x2f43,
    0xd7a7, 0x3dfb, 0x0099, 0x2b4d, 0xdf0b, 0x4fc1, 0x2480, 0x2b83,
};
/* The base point. */
static const field base_x = {
    0xd51a, 0x8f25, 0x2d60, 0xc956, 0xa7b2, 0x9525, 0xc760, 0x692c,
    0xdc5c, 0xfdd6, 0xe231, 0xc0a4, 0x53fe, 0xcd6e, 0x36d3, 0x2169,
};
static const field base_y = {
    0x6658, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666,
    0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666,
};

/* ---- numbers ---------------------------------------------------------------------------------- */

static void copy(field to, const field from) { memcpy(to, from, sizeof(field)); }

static void carry(field x) {
  for (int k = 0; k < 16; k++) {
    x[k] += 65536;
    int64_t high = x[k] >> 16;
    if (k < 15)
      x[k + 1] += high - 1;
    else
      x[0] += 38 * (high - 1);
    x[k] -= high * 65536;
  }
}

static void add(field sum, const field a, const field b) {
  for (int k = 0; k < 16; k++) sum[k] = a[k] + b[k];
}

static void subtract(field difference, const field a, const field b) {
  for (int k = 0; k < 16; k++) difference[k] = a[k] - b[k];
}

static void multiply(field product, const field a, const field b) {
  int64_t sums[31] = {0};
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) sums[i + j] += a[i] * b[j];
  for (int k = 0; k < 15; k++) sums[k] += 38 * sums[k + 16];
  memcpy(product, sums, sizeof(field));
  carry(product);
  carry(product);
}

/* x^(2^255 - 21), the inverse; or x^(2^252 - 3), by which roots are found. */
static void power(field result, const field x, int bits, int first, int second) {
  field value;
  copy(value, x);
  for (int bit = bits; bit >= 0; bit--) {
    multiply(value, value, value);
    if (bit != first && bit != second) multiply(value, value, x);
  }
  copy(result, value);
}

static void invert(field result, const field x) { power(result, x, 253, 2, 4); }

static void root_power(field result, const field x) { power(result, x, 250, 1, 1); }

/* The least number of the same class, as bytes. */
static void pack_field(uint8_t bytes[32], const field x) {
  field value, less;
  copy(value, x);
  for (int k = 0; k < 3; k++) carry(value);
  for (int time = 0; time < 2; time++) {
    less[0] = value[0] - 0xffed;
    for (int k = 1; k < 16; k++) {
      less[k] = value[k] - (k < 15 ? 0xffff : 0x7fff) - (less[k - 1] >> 16 & 1);
      less[k - 1] &= 0xffff;
    }
    bool is_less = less[15] >> 16 & 1;
    if (!is_less) copy(value, less);
  }
  for (int k = 0; k < 16; k++) {
    bytes[2 * k] = (uint8_t)value[k];
    bytes[2 * k + 1] = (uint8_t)(value[k] >> 8);
  }
}

static void unpack_field(field x, const uint8_t bytes[32]) {
  for (int k = 0; k < 16; k++) x[k] = bytes[2 * k] + ((int64_t)bytes[2 * k + 1] << 8);
  x[15] &= 0x7fff;
}

static bool are_equal(const field a, const field b) {
  uint8_t first[32], second[32];
  pack_field(first, a);
  pack_field(second, b);
  return !memcmp(first, second, sizeof first);
}

static int parity(const field x) {
  uint8_t bytes[32];
  pack_field(bytes, x);
  return bytes[0] & 1;
}

/* ---- points ----------------------------------------------------------------------------------- */

static void add_point(point p, point q) {
  field a, b, c, d, t, e, f, g, h;
  subtract(a, p[1], p[0]);
  subtract(t, q[1], q[0]);
  multiply(a, a, t);
  add(b, p[0], p[1]);
  add(t, q[0], q[1]);
  multiply(b, b, t);
  multiply(c, p[3], q[3]);
  multiply(c, c, twice_d);
  multiply(d, p[2], q[2]);
  add(d, d, d);
  subtract(e, b, a);
  subtract(f, d, c);
  add(g, d, c);
  add(h, b, a);
  multiply(p[0], e, f);
  multiply(p[1], h, g);
  multiply(p[2], g, f);
  multiply(p[3], e, h);
}

/* A point so many times; the point that is given is changed. */
static void multiply_point(point product, point p, const uint8_t times[32]) {
  copy(product[0], zero);
  copy(product[1], one);
  copy(product[2], one);
  copy(product[3], zero);
  for (int bit = 0; bit < 256; bit++) {
    if (times[bit / 8] >> (bit % 8) & 1) add_point(product, p);
    add_point(p, p);
  }
}

static void pack_point(uint8_t bytes[32], point p) {
  field x, y, inverse;
  invert(inverse, p[2]);
  multiply(x, p[0], inverse);
  multiply(y, p[1], inverse);
  pack_field(bytes, y);
  bytes[31] ^= (uint8_t)(parity(x) << 7);
}

/* The negative of a point; false for bytes that are none. */
static bool unpack_negative(point p, const uint8_t bytes[32]) {
  field t, number, divisor, second, fourth, sixth;
  copy(p[2], one);
  unpack_field(p[1], bytes);
  multiply(number, p[1], p[1]);
  multiply(divisor, number, curve_d);
  subtract(number, number, p[2]);
  add(divisor, p[2], divisor);
  multiply(second, divisor, divisor);
  multiply(fourth, second, second);
  multiply(sixth, fourth, second);
  multiply(t, sixth, number);
  multiply(t, t, divisor);
  root_power(t, t);
  multiply(t, t, number);
  multiply(t, t, divisor);
  multiply(t, t, divisor);
  multiply(p[0], t, divisor);
  multiply(t, p[0], p[0]);
  multiply(t, t, divisor);
  if (!are_equal(t, number)) multiply(p[0], p[0], root);
  multiply(t, p[0], p[0]);
  multiply(t, t, divisor);
  if (!are_equal(t, number)) return false;
  if (parity(p[0]) == bytes[31] >> 7) subtract(p[0], zero, p[0]);
  multiply(p[3], p[0], p[1]);
  return true;
}

/* ---- scalars ---------------------------------------------------------------------------------- */

/* The order of the base point, 2^252 + 27742317777372353535851937790883648493. */
static const int64_t order[32] = {
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10,
};

/* A number of 64 bytes modulo the order. */
static void reduce(uint8_t scalar[32], const uint8_t bytes[64]) {
  int64_t x[64], over;
  for (int k = 0; k < 64; k++) x[k] = bytes[k];
  for (int i = 63; i >= 32; i--) {
    over = 0;
    int j = i - 32;
    for (; j < i - 12; j++) {
      x[j] += over - 16 * x[i] * order[j - (i - 32)];
      over = (x[j] + 128) >> 8;
      x[j] -= over * 256;
    }
    x[j] += over;
    x[i] = 0;
  }
  over = 0;
  int64_t high = x[31] >> 4;
  for (int j = 0; j < 32; j++) {
    x[j] += over - high * order[j];
    over = x[j] >> 8;
    x[j] &= 255;
  }
  for (int j = 0; j < 32; j++) x[j] -= over * order[j];
  for (int k = 0; k < 32; k++) {
    x[k + 1] += x[k] >> 8;
    scalar[k] = (uint8_t)x[k];
  }
}

/* Whether a scalar is below the order, as it must be: others would be second forms of a signature. */
static bool is_reduced(const uint8_t scalar[32]) {
  for (int k = 31; k >= 0; k--)
    if (scalar[k] != order[k]) return scalar[k] < order[k];
  return false;
}

bool tw_ed25519_holds(const uint8_t signature[TW_SIGNATURE_BYTES], const uint8_t key[TW_KEY_BYTES],
                      const void *text, size_t size) {
  point p, q, sum;
  uint8_t digest[64], scalar[32], found[32];
  if (!is_reduced(signature + 32) || !unpack_negative(q, key)) return false;
  tw_sha512 hash;
  tw_sha512_begin(&hash);
  tw_sha512_add(&hash, signature, 32);
  tw_sha512_add(&hash, key, TW_KEY_BYTES);
  tw_sha512_add(&hash, text, size);
  tw_sha512_end(&hash, digest);
  reduce(scalar, digest);
  multiply_point(sum, q, scalar);
  copy(q[0], base_x);
  copy(q[1], base_y);
  copy(q[2], one);
  multiply(q[3], base_x, base_y);
  multiply_point(p, q, signature + 32);
  add_point(sum, p);
  pack_point(found, sum);
  return !memcmp(found, signature, sizeof found);
}
