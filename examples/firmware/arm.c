/* Start-up code for Cortex-M: vectors, floating point, memory; semihosting; SysTick as a counter. */
#include "firmware.h"

extern uint32_t bss_start[], bss_end[], stack_high[];

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYSTICK_CONTROL REGISTER(0xe000e010)
#define SYSTICK_RELOAD REGISTER(0xe000e014)
#define SYSTICK_VALUE REGISTER(0xe000e018)
#define COPROCESSORS REGISTER(0xe000ed88)

/* Instructions of one tick: the emulator takes a nanosecond for each, the board's clock is CLOCK. */
#ifndef CLOCK
#define CLOCK 25000000u
#endif
#define FULL 0xffffffu

static volatile uint32_t wraps;

int32_t semihost(uint32_t operation, const void *argument) {
  register uint32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return (int32_t)r0;
}

static void leave(int status) {
  /* SYS_EXIT_EXTENDED: ADP_Stopped_ApplicationExit, and the status. */
  const uint32_t block[2] = {0x20026, (uint32_t)status};
  semihost(0x20, block);
  for (;;) continue;
}

void counter_start(void) {
  wraps = 0;
  SYSTICK_RELOAD = FULL;
  SYSTICK_VALUE = 0;
  SYSTICK_CONTROL = 7;
}

uint64_t counter_read(void) {
  uint32_t value = SYSTICK_VALUE;
  SYSTICK_CONTROL = 0;
  uint64_t ticks = (uint64_t)wraps * (FULL + 1ull) + (FULL - value);
  return ticks * (1000000000ull * 256 / CLOCK) >> 8;
}

static void on_tick(void) { wraps++; }

static void on_fault(void) { leave(99); }

void start(void) {
  COPROCESSORS |= 0xfu << 20;
  __asm__ volatile("dsb\n isb" ::: "memory");
  for (uint32_t *p = bss_start; p < bss_end; p++) *p = 0;
  leave(firmware_main());
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_high, start,    on_fault, on_fault, on_fault, on_fault,
    on_fault,                   on_fault, 0,        0,        0,        on_fault,
    on_fault,                   0,        on_fault, on_tick};
