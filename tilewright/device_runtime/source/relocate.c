/* What the relocations of ELF files ask for, on the machine that this is compiled for. Only what
   LLVM emits for position-independent code is here. */
#include <string.h>

#include "image.h"

#if !defined(__x86_64__)
static uint32_t word_at(const uint8_t *at) {
  uint32_t word;
  memcpy(&word, at, sizeof word);
  return word;
}
#endif

static void put_word(uint8_t *at, uint32_t word) { memcpy(at, &word, sizeof word); }

/* Whether a distance fits into so many bits with a sign. */
static bool fits(int64_t distance, int bits) {
  int64_t limit = (int64_t)1 << (bits - 1);
  return distance >= -limit && distance < limit;
}

#if !defined(__arm__)
static void put_long(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

static bool put_distance(uint8_t *at, int64_t distance) {
  put_word(at, (uint32_t)distance);
  return fits(distance, 32);
}
#endif

#if defined(__x86_64__)
const uint16_t tw_machine = EM_X86_64;
/* jmp [rip + 2]; nop; nop */
const uint8_t tw_jump_code[] = {0xff, 0x25, 2, 0, 0, 0, 0x90, 0x90};
const size_t tw_jump_size = sizeof tw_jump_code, tw_jump_word = 8;

tw_aim tw_relocation_aim(uint32_t kind) {
  switch (kind) {
    case R_X86_64_NONE: return TW_NOTHING;
    case R_X86_64_64:
    case R_X86_64_PC64:
    case R_X86_64_PC32: return TW_SYMBOL;
    case R_X86_64_PLT32: return TW_JUMP;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return TW_WRITTEN;
    default: return TW_UNKNOWN;
  }
}

size_t tw_relocation_bytes(uint32_t kind) {
  if (kind == R_X86_64_NONE) return 0;
  return kind == R_X86_64_64 || kind == R_X86_64_PC64 ? 8 : 4;
}

bool tw_relocate(uint8_t *at, uint32_t kind, uintptr_t target, uintptr_t place, bool is_in_place) {
  int64_t distance = (int64_t)(target - place);
  if (is_in_place) return false;
  if (kind == R_X86_64_64) return put_long(at, target), true;
  if (kind == R_X86_64_PC64) return put_long(at, (uint64_t)distance), true;
  return put_distance(at, distance);
}

bool tw_relocation_is_low_half(uint32_t kind) { return (void)kind, false; }

#elif defined(__aarch64__)
const uint16_t tw_machine = EM_AARCH64;
/* ldr x16, #8; br x16 */
const uint8_t tw_jump_code[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6};
const size_t tw_jump_size = sizeof tw_jump_code, tw_jump_word = 8;

/* By how much the last bits of an address are shifted in an access; -1 for other kinds. */
static int access_shift(uint32_t kind) {
  switch (kind) {
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return 0;
    case R_AARCH64_LDST16_ABS_LO12_NC: return 1;
    case R_AARCH64_LDST32_ABS_LO12_NC: return 2;
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC: return 3;
    case R_AARCH64_LDST128_ABS_LO12_NC: return 4;
    default: return -1;
  }
}

tw_aim tw_relocation_aim(uint32_t kind) {
  switch (kind) {
    case R_AARCH64_NONE: return TW_NOTHING;
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64:
    case R_AARCH64_PREL32:
    case R_AARCH64_ADR_PREL_PG_HI21: return TW_SYMBOL;
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26: return TW_JUMP;
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_LD64_GOT_LO12_NC: return TW_WRITTEN;
    default: return access_shift(kind) >= 0 ? TW_SYMBOL : TW_UNKNOWN;
  }
}

size_t tw_relocation_bytes(uint32_t kind) {
  if (kind == R_AARCH64_NONE) return 0;
  return kind == R_AARCH64_ABS64 || kind == R_AARCH64_PREL64 ? 8 : 4;
}

static void set_bits(uint8_t *at, int first, int count, int64_t value) {
  uint32_t mask = ((uint32_t)1 << count) - 1;
  put_word(at, (word_at(at) & ~(mask << first)) | ((uint32_t)value & mask) << first);
}

bool tw_relocate(uint8_t *at, uint32_t kind, uintptr_t target, uintptr_t place, bool is_in_place) {
  int64_t distance = (int64_t)(target - place);
  int shift = access_shift(kind);
  if (is_in_place) return false;
  if (shift >= 0) {
    set_bits(at, 10, 12, (int64_t)(target & 0xfff) >> shift);
    return target % ((uintptr_t)1 << shift) == 0;
  }
  switch (kind) {
    case R_AARCH64_ABS64: return put_long(at, target), true;
    case R_AARCH64_PREL64: return put_long(at, (uint64_t)distance), true;
    case R_AARCH64_PREL32: return put_distance(at, distance);
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26:
      set_bits(at, 0, 26, distance >> 2);
      return distance % 4 == 0 && fits(distance, 28);
    default: break;
  }
  int64_t pages = (int64_t)(target >> 12) - (int64_t)(place >> 12);
  set_bits(at, 29, 2, pages & 3);
  set_bits(at, 5, 19, pages >> 2);
  return fits(pages, 21);
}

bool tw_relocation_is_low_half(uint32_t kind) { return (void)kind, false; }

#elif defined(__arm__)
const uint16_t tw_machine = EM_ARM;
/* ldr pc, [pc, #-4] */
const uint8_t tw_jump_code[] = {4, 0xf0, 0x1f, 0xe5};
const size_t tw_jump_size = sizeof tw_jump_code, tw_jump_word = 4;

tw_aim tw_relocation_aim(uint32_t kind) {
  switch (kind) {
    case R_ARM_NONE:
    case R_ARM_V4BX: return TW_NOTHING;
    case R_ARM_ABS32:
    case R_ARM_REL32:
    case R_ARM_MOVW_PREL_NC:
    case R_ARM_MOVT_PREL: return TW_SYMBOL;
    case R_ARM_CALL:
    case R_ARM_JUMP24: return TW_JUMP;
    case R_ARM_GOT_PREL: return TW_WRITTEN;
    default: return TW_UNKNOWN;
  }
}

size_t tw_relocation_bytes(uint32_t kind) {
  return kind == R_ARM_NONE || kind == R_ARM_V4BX ? 0 : 4;
}

/* Halves of addresses lie in two parts of an instruction. */
static uint32_t half_in(uint32_t word) { return (word >> 4 & 0xf000) | (word & 0xfff); }

static void put_half(uint8_t *at, uint32_t half) {
  put_word(at, (word_at(at) & 0xfff0f000) | (half & 0xf000) << 4 | (half & 0xfff));
}

bool tw_relocate(uint8_t *at, uint32_t kind, uintptr_t target, uintptr_t place, bool is_in_place) {
  uint32_t word = word_at(at);
  int32_t distance = (int32_t)(target - place);
  bool is_half = kind == R_ARM_MOVW_PREL_NC || kind == R_ARM_MOVT_PREL;
  if (is_half) {
    distance += is_in_place ? (int16_t)half_in(word) : 0;
    put_half(at, (uint32_t)distance >> (kind == R_ARM_MOVT_PREL ? 16 : 0));
    return true;
  }
  if (kind == R_ARM_CALL || kind == R_ARM_JUMP24) {
    /* 24 bits of instructions with a sign. */
    distance += is_in_place ? (int32_t)(word << 8) >> 6 : 0;
    put_word(at, (word & 0xff000000) | ((uint32_t)distance >> 2 & 0xffffff));
    return distance % 4 == 0 && fits(distance, 26);
  }
  uint32_t addend = is_in_place ? word : 0;
  put_word(at, (uint32_t)(kind == R_ARM_ABS32 ? target : (uintptr_t)distance) + addend);
  return true;
}

bool tw_relocation_is_low_half(uint32_t kind) { return (void)kind, false; }

#elif defined(__riscv) && __riscv_xlen == 64
const uint16_t tw_machine = EM_RISCV;
/* auipc t1, 0; ld t1, 16(t1); jr t1; nop */
const uint8_t tw_jump_code[] = {0x17, 3, 0, 0, 3, 0x33, 3, 1, 0x67, 0, 3, 0, 0x13, 0, 0, 0};
const size_t tw_jump_size = sizeof tw_jump_code, tw_jump_word = 16;

tw_aim tw_relocation_aim(uint32_t kind) {
  switch (kind) {
    case R_RISCV_NONE:
    case R_RISCV_RELAX: return TW_NOTHING;
    case R_RISCV_32:
    case R_RISCV_64:
    case R_RISCV_32_PCREL:
    case R_RISCV_ADD32:
    case R_RISCV_SUB32:
    case R_RISCV_BRANCH:
    case R_RISCV_JAL:
    case R_RISCV_PCREL_HI20:
    case R_RISCV_PCREL_LO12_I:
    case R_RISCV_PCREL_LO12_S: return TW_SYMBOL;
    case R_RISCV_CALL:
    case R_RISCV_CALL_PLT: return TW_JUMP;
    case R_RISCV_GOT_HI20: return TW_WRITTEN;
    default: return TW_UNKNOWN;
  }
}

size_t tw_relocation_bytes(uint32_t kind) {
  if (kind == R_RISCV_NONE || kind == R_RISCV_RELAX) return 0;
  return kind == R_RISCV_64 || kind == R_RISCV_CALL || kind == R_RISCV_CALL_PLT ? 8 : 4;
}

/* An address is the sum of 20 upper bits and 12 lower ones with a sign. */
static bool put_upper(uint8_t *at, int64_t distance) {
  put_word(at, (word_at(at) & 0xfff) | ((uint32_t)(distance + 0x800) & 0xfffff000));
  return fits(distance + 0x800, 32);
}

static bool put_lower(uint8_t *at, int64_t distance, bool is_store) {
  uint32_t low = (uint32_t)distance & 0xfff, word = word_at(at);
  put_word(at, is_store ? (word & 0x01fff07f) | (low >> 5) << 25 | (low & 31) << 7
                        : (word & 0xfffff) | low << 20);
  return true;
}

static bool put_branch(uint8_t *at, int64_t d) {
  uint32_t v = (uint32_t)d;
  put_word(at, (word_at(at) & 0x01fff07f) | (v >> 12 & 1) << 31 | (v >> 5 & 0x3f) << 25 |
                   (v >> 1 & 15) << 8 | (v >> 11 & 1) << 7);
  return d % 2 == 0 && fits(d, 13);
}

static bool put_jal(uint8_t *at, int64_t d) {
  uint32_t v = (uint32_t)d;
  put_word(at, (word_at(at) & 0xfff) | (v >> 20 & 1) << 31 | (v >> 1 & 0x3ff) << 21 |
                   (v >> 11 & 1) << 20 | (v >> 12 & 0xff) << 12);
  return d % 2 == 0 && fits(d, 21);
}

bool tw_relocate(uint8_t *at, uint32_t kind, uintptr_t target, uintptr_t place, bool is_in_place) {
  int64_t distance = (int64_t)(target - place);
  if (is_in_place) return false;
  switch (kind) {
    case R_RISCV_64: return put_long(at, target), true;
    case R_RISCV_32: return put_word(at, (uint32_t)target), target <= UINT32_MAX;
    case R_RISCV_32_PCREL: return put_distance(at, distance);
    case R_RISCV_ADD32: return put_word(at, word_at(at) + (uint32_t)target), true;
    case R_RISCV_SUB32: return put_word(at, word_at(at) - (uint32_t)target), true;
    case R_RISCV_BRANCH: return put_branch(at, distance);
    case R_RISCV_JAL: return put_jal(at, distance);
    case R_RISCV_PCREL_LO12_I: return put_lower(at, distance, false);
    case R_RISCV_PCREL_LO12_S: return put_lower(at, distance, true);
    case R_RISCV_CALL:
    case R_RISCV_CALL_PLT: return put_upper(at, distance) && put_lower(at + 4, distance, false);
    default: return put_upper(at, distance);
  }
}

bool tw_relocation_is_low_half(uint32_t kind) {
  return kind == R_RISCV_PCREL_LO12_I || kind == R_RISCV_PCREL_LO12_S;
}
#endif
