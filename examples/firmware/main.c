/* Runs a model once: inputs come from the file inputs.bin, outputs go to outputs.bin, and figures to
   figures.txt: the instructions of a run, and the bytes of stack that it used. */
#include "firmware.h"

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT = 0x18 };
enum { READ_BINARY = 1, WRITE_BINARY = 5 };

/* Marks stack that nobody has used. */
#define UNUSED 0x5a5a5a5au

extern uint32_t stack_low[], stack_high[];

static int32_t open_file(const char *name, uint32_t length, uint32_t mode) {
  const uintptr_t block[3] = {(uintptr_t)name, mode, length};
  return semihost(SYS_OPEN, block);
}

/* 0 where all bytes were moved. */
static int32_t move(uint32_t operation, int32_t file, void *data, uint32_t size) {
  const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)data, size};
  return semihost(operation, block);
}

static void close_file(int32_t file) {
  const uintptr_t block[1] = {(uintptr_t)file};
  semihost(SYS_CLOSE, block);
}

static int32_t move_all(uint32_t operation, int32_t file, const struct tensor *all, uint32_t count) {
  int32_t failed = file < 0;
  for (uint32_t k = 0; k < count && !failed; k++)
    if (all[k].size) failed = move(operation, file, all[k].data, all[k].size);
  close_file(file);
  return failed;
}

static char *number(char *to, uint64_t value) {
  char digits[20];
  int count = 0;
  /* By repeated subtraction: 64-bit division would need the compiler's library. */
  static const uint64_t powers[] = {
      1000000000000ull, 100000000000ull, 10000000000ull, 1000000000ull, 100000000ull,
      10000000ull,      1000000ull,      100000ull,      10000ull,      1000ull,
      100ull,           10ull,           1ull};
  for (unsigned k = 0; k < sizeof powers / sizeof *powers; k++) {
    char digit = '0';
    for (; value >= powers[k]; value -= powers[k]) digit++;
    if (count || digit != '0' || powers[k] == 1) digits[count++] = digit;
  }
  for (int k = 0; k < count; k++) *to++ = digits[k];
  *to++ = '\n';
  return to;
}

/* Marks the stack below the caller's frame. */
static void __attribute__((noinline)) mark_stack(void) {
  volatile uint32_t here;
  for (volatile uint32_t *p = stack_low; p < &here - 32; p++) *p = UNUSED;
}

static uint32_t __attribute__((noinline)) used_stack(void) {
  const volatile uint32_t *p = stack_low;
  while (p < stack_high && *p == UNUSED) p++;
  return (uint32_t)((uintptr_t)stack_high - (uintptr_t)p);
}

int firmware_main(void) {
  static char text[80];
  if (move_all(SYS_READ, open_file("inputs.bin", 10, READ_BINARY), model_inputs, model_input_count))
    return 90;
  mark_stack();
  counter_start();
  int32_t status = model_run();
  uint64_t instructions = counter_read();
  if (status) return 91;
  char *end = number(number(text, instructions), used_stack());
  int32_t file = open_file("figures.txt", 11, WRITE_BINARY);
  if (file < 0 || move(SYS_WRITE, file, text, (uint32_t)(end - text))) return 92;
  close_file(file);
  file = open_file("outputs.bin", 11, WRITE_BINARY);
  return move_all(SYS_WRITE, file, model_outputs, model_output_count) ? 93 : 0;
}
