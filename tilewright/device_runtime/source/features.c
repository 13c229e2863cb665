/* What this machine can do, by LLVM's names: asked of the processor, or of the system. */
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

typedef struct {
  const char *name;
  /* Which word tells, and the bit in it. */
  int word, bit;
} feature;

#if defined(__x86_64__)
#include <cpuid.h>
static const char *const architectures[] = {"x86_64", NULL};
/* ECX and EDX of leaf 1; EBX, ECX and EDX of leaf 7; EAX of leaf 7.1; ECX of leaf 0x80000001. */
enum { C1, D1, B7, C7, D7, A71, CE, WORDS };
static const feature features[] = {
    {"sse", D1, 25},        {"sse2", D1, 26},       {"sse3", C1, 0},        {"ssse3", C1, 9},
    {"fma", C1, 12},        {"cx16", C1, 13},       {"sse4.1", C1, 19},     {"sse4.2", C1, 20},
    {"crc32", C1, 20},      {"movbe", C1, 22},      {"popcnt", C1, 23},     {"avx", C1, 28},
    {"f16c", C1, 29},       {"bmi", B7, 3},         {"avx2", B7, 5},        {"bmi2", B7, 8},
    {"avx512f", B7, 16},    {"avx512dq", B7, 17},   {"adx", B7, 19},        {"avx512ifma", B7, 21},
    {"clflushopt", B7, 23}, {"clwb", B7, 24},       {"avx512cd", B7, 28},   {"avx512bw", B7, 30},
    {"avx512vl", B7, 31},   {"avx512vbmi", C7, 1},  {"avx512vbmi2", C7, 6}, {"gfni", C7, 8},
    {"avx512vnni", C7, 11}, {"avx512bitalg", C7, 12}, {"avx512vpopcntdq", C7, 14},
    {"rdpid", C7, 22},      {"cldemote", C7, 25},   {"movdiri", C7, 27},    {"movdir64b", C7, 28},
    {"avx512vp2intersect", D7, 8}, {"amx-bf16", D7, 22}, {"avx512fp16", D7, 23},
    {"amx-tile", D7, 24},   {"amx-int8", D7, 25},   {"avxvnni", A71, 4},    {"avx512bf16", A71, 5},
    {"amx-fp16", A71, 21},  {"avxifma", A71, 23},   {"sahf", CE, 0},        {"lzcnt", CE, 5},
    {"sse4a", CE, 6},       {"prfchw", CE, 8},
};

/* The registers that the system saves and restores. */
static uint32_t saved_state(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static void ask(uint64_t *words) {
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d)) words[C1] = c, words[D1] = d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) words[B7] = b, words[C7] = c, words[D7] = d;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) words[A71] = a;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) words[CE] = c;
  uint32_t state = words[C1] >> 27 & 1 ? saved_state() : 0;
  /* Features of wide vectors are of no use where the system does not keep these. */
  if ((state & 6) != 6) words[C1] &= ~(UINT64_C(1) << 28 | 1 << 29 | 1 << 12), words[B7] &= ~UINT64_C(32), words[A71] = 0;
  if ((state & 0xe6) != 0xe6) {
    for (size_t k = 0; k < sizeof features / sizeof *features; k++)
      if (!strncmp(features[k].name, "avx512", 6))
        words[features[k].word] &= ~(UINT64_C(1) << features[k].bit);
  }
}
#elif defined(__aarch64__)
static const char *const architectures[] = {"aarch64", "arm64", NULL};
enum { H1, H2, WORDS };
static const feature features[] = {
    {"fp-armv8", H1, 0},  {"neon", H1, 1},      {"crc", H1, 7},       {"lse", H1, 8},
    {"fullfp16", H1, 10}, {"rdm", H1, 12},      {"jsconv", H1, 13},   {"complxnum", H1, 14},
    {"rcpc", H1, 15},     {"dotprod", H1, 20},  {"sve", H1, 22},      {"fp16fml", H1, 23},
    {"lse2", H1, 25},     {"rcpc-immo", H1, 26}, {"flagm", H1, 27},   {"sve2", H2, 1},
    {"sve-bitperm", H2, 4}, {"altnzcv", H2, 7}, {"fptoint", H2, 8},   {"f32mm", H2, 10},
    {"f64mm", H2, 11},    {"i8mm", H2, 13},     {"bf16", H2, 14},     {"sme", H2, 23},
    {"sme-i16i64", H2, 24}, {"sme-f64f64", H2, 25}, {"cssc", H2, 34}, {"sve2p1", H2, 36},
    {"sme2", H2, 37},     {"mops", H2, 43},
};

static void ask(uint64_t *words) {
  words[H1] = getauxval(AT_HWCAP);
  words[H2] = getauxval(AT_HWCAP2);
}
#elif defined(__arm__)
static const char *const architectures[] = {"armv7", "arm", "armv7l", "armv7a", NULL};
enum { H1, H2, WORDS };
/* Half-precision conversions come with the fourth version of the unit or with NEON's. The unit of
   ARMv8 has no bit of its own: processors that have it have checksums as well. */
static const feature features[] = {
    {"vfp2sp", H1, 6},    {"neon", H1, 12},  {"vfp3", H1, 13},    {"vfp3d16sp", H1, 13},
    {"fp64", H1, 13},     {"d32", H1, 19},   {"vfp4", H1, 16},    {"vfp4d16sp", H1, 16},
    {"fp16", H1, 16},     {"hwdiv-arm", H1, 17}, {"hwdiv", H1, 18}, {"crc", H2, 4},
    {"fp-armv8", H2, 4},  {"fp-armv8d16", H2, 4}, {"fp-armv8d16sp", H2, 4},
};

static void ask(uint64_t *words) {
  words[H1] = getauxval(AT_HWCAP);
  words[H2] = getauxval(AT_HWCAP2);
}
#elif defined(__riscv) && __riscv_xlen == 64
static const char *const architectures[] = {"riscv64", NULL};
enum { H1, WORDS };
/* Letters of extensions are bits. The vectors of V hold 128 bits at least. */
static const feature features[] = {
    {"a", H1, 0},       {"c", H1, 2},       {"d", H1, 3},       {"f", H1, 5},       {"m", H1, 12},
    {"v", H1, 21},      {"zvl32b", H1, 21}, {"zvl64b", H1, 21}, {"zvl128b", H1, 21},
    {"zve32x", H1, 21}, {"zve32f", H1, 21}, {"zve64x", H1, 21}, {"zve64f", H1, 21},
    {"zve64d", H1, 21},
};

static void ask(uint64_t *words) { words[H1] = getauxval(AT_HWCAP); }
#else
#error "there is no loader of code for this machine"
#endif

static bool has(const uint64_t *words, const char *name) {
  /* Which instructions are preferred, where all are there. */
  if (!strncmp(name, "prefer-", 7)) return true;
  for (size_t k = 0; k < sizeof features / sizeof *features; k++)
    if (!strcmp(features[k].name, name)) return words[features[k].word] >> features[k].bit & 1;
  return false;
}

static bool is_for_this_architecture(const char *triple) {
  for (size_t k = 0; architectures[k]; k++) {
    size_t size = strlen(architectures[k]);
    if (!strncmp(triple, architectures[k], size) && triple[size] == '-') return true;
  }
  return false;
}

const char *tw_why_not(const char *triple, const tw_json *wanted, char *reason, size_t room) {
  if (!is_for_this_architecture(triple) || !strstr(triple, "linux")) {
    snprintf(reason, room, "it is for %s, and this machine is %s-linux", triple, architectures[0]);
    return reason;
  }
  uint64_t words[WORDS] = {0};
  ask(words);
  for (const tw_json *item = wanted->first; item; item = item->next)
    if (item->kind != TW_TEXT || !has(words, item->text)) {
      snprintf(reason, room, "this machine lacks %s", item->kind == TW_TEXT ? item->text : "?");
      return reason;
    }
  return NULL;
}

void tw_this_target(char *text, size_t room) {
  uint64_t words[WORDS] = {0};
  ask(words);
  const char *libc = sizeof(void *) > 4 ? "gnu" : "gnueabihf";
  int used = snprintf(text, room, "llvm -mtriple=%s-unknown-linux-%s -num-cores=%ld -mattr=",
                      architectures[0], libc, sysconf(_SC_NPROCESSORS_ONLN));
  const char *between = "";
  for (size_t k = 0; k < sizeof features / sizeof *features; k++) {
    /* Tiles need a leave that a session would have to ask for. */
    if (!has(words, features[k].name) || !strncmp(features[k].name, "amx", 3)) continue;
    if (used < 0 || (size_t)used + 32 > room) return;
    used += snprintf(text + used, room - (size_t)used, "%s+%s", between, features[k].name);
    between = ",";
  }
}

bool tw_request_amx(void) {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  enum { REQUEST = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
  return false;
#endif
}
