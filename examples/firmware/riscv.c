/* Start-up code for RISC-V: stack, memory; semihosting; the counter of retired instructions. */
#include "firmware.h"

extern uint32_t bss_start[], bss_end[];

static uint64_t first;

int32_t semihost(uint32_t operation, const void *argument) {
  register uint32_t a0 __asm__("a0") = operation;
  register const void *a1 __asm__("a1") = argument;
  /* These three, uncompressed and on one page, are the request. */
  __asm__ volatile(
      ".option push\n .option norvc\n .balign 16\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n"
      ".option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return (int32_t)a0;
}

static uint64_t retired(void) {
  uint32_t low, high, again;
  do
    __asm__ volatile("csrr %0, minstreth\n csrr %1, minstret\n csrr %2, minstreth"
                     : "=r"(high), "=r"(low), "=r"(again));
  while (high != again);
  return (uint64_t)high << 32 | low;
}

void counter_start(void) { first = retired(); }

uint64_t counter_read(void) { return retired() - first; }

static void leave(int status) {
  const uint32_t block[2] = {0x20026, (uint32_t)status};
  semihost(0x20, block);
  for (;;) continue;
}

static void __attribute__((aligned(4))) on_fault(void) { leave(99); }

void begin(void) {
  __asm__ volatile("csrw mtvec, %0" ::"r"(on_fault));
  for (uint32_t *p = bss_start; p < bss_end; p++) *p = 0;
  leave(firmware_main());
}

__attribute__((section(".vectors"), naked, used)) void start(void) {
  __asm__ volatile("la sp, stack_high\n j begin");
}
