/* Cortex-M (Armv7-M and later): start, faults, SysTick as a counter of cycles, calls.

   What is called has the process stack; the monitor and all handlers have the main one. A fault ends
   the call: the handler returns to behind it, with the registers that the monitor had. */
#include "monitor.h"

extern uint32_t bss_start[], bss_end[], main_stack[], call_stack_low[], call_stack[];

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYSTICK_CONTROL REGISTER(0xe000e010)
#define SYSTICK_RELOAD REGISTER(0xe000e014)
#define SYSTICK_VALUE REGISTER(0xe000e018)
#define RESET_CONTROL REGISTER(0xe000ed0c)
#define FAULT_STATUS REGISTER(0xe000ed28)
#define HARD_FAULT_STATUS REGISTER(0xe000ed2c)
#define MEMORY_FAULT_ADDRESS REGISTER(0xe000ed34)
#define BUS_FAULT_ADDRESS REGISTER(0xe000ed38)
#define COPROCESSORS REGISTER(0xe000ed88)
#define FLOAT_CONTEXT REGISTER(0xe000ef34)

enum { MEMORY_ADDRESS_VALID = 1 << 7, BUS_ADDRESS_VALID = 1 << 15 };
#define FULL 0xffffffu

const uint16_t machine_number = 40;

/* The main stack during a call; 0 where there is none. */
uint32_t *volatile kept_stack;
static volatile uint32_t wraps;
/* Ticks between two interrupts, less one; how many of these a call may see, 0: any number. */
static uint32_t period;
static uint64_t wraps_allowed;
static struct outcome ended;

/* ---- faults ---------------------------------------------------------------------------------- */

static uint32_t place_of(const uint32_t *frame) {
  int is_there = frame >= call_stack_low && frame + 8 <= call_stack;
  return is_there ? frame[6] : 0;
}

/* Takes down why the call ends; a fault of the monitor itself starts it anew. */
void __attribute__((used)) fault_seen(const uint32_t *frame) {
  if (!kept_stack) RESET_CONTROL = 0x05fa0004;
  while (!kept_stack) continue;
  uint32_t status = FAULT_STATUS;
  ended.reason = FAULT;
  ended.cause = status;
  ended.place = place_of(frame);
  ended.address = status & BUS_ADDRESS_VALID      ? BUS_FAULT_ADDRESS
                  : status & MEMORY_ADDRESS_VALID ? MEMORY_FAULT_ADDRESS
                                                  : 0;
  FAULT_STATUS = status;
  HARD_FAULT_STATUS = HARD_FAULT_STATUS;
}

/* Whether the call is to end now. */
int __attribute__((used)) tick_seen(const uint32_t *frame) {
  wraps++;
  if (!kept_stack || !wraps_allowed || wraps < wraps_allowed) return 0;
  ended.reason = TOO_LONG;
  ended.place = place_of(frame);
  return 1;
}

/* Forgets floating-point registers that were yet to be stored. */
void __attribute__((used)) forget_floats(void) { FLOAT_CONTEXT &= ~1u; }

/* Returns from a handler to `call_ended`, on the main stack as it was when the call began. */
__attribute__((naked, used)) static void leave_call(void) {
  __asm__ volatile(
      "bl forget_floats\n"
      "ldr r0, =kept_stack\n ldr r0, [r0]\n subs r0, #32\n mov sp, r0\n"
      "ldr r1, =call_ended\n bic r1, r1, #1\n str r1, [r0, #24]\n"
      "mov r1, #0x01000000\n str r1, [r0, #28]\n"
      "mvn r0, #6\n bx r0\n");
}

__attribute__((naked)) static void on_fault(void) {
  __asm__ volatile("mrs r0, psp\n bl fault_seen\n b leave_call");
}

__attribute__((naked)) static void on_tick(void) {
  __asm__ volatile(
      "mrs r0, psp\n push {r4, lr}\n bl tick_seen\n cbnz r0, 1f\n pop {r4, pc}\n"
      "1: b leave_call");
}

/* ---- calls ----------------------------------------------------------------------------------- */

void machine_synchronize(void) { __asm__ volatile("dsb\n isb" ::: "memory"); }

/* Calls `entry` with four words in registers, and the others where `stack` points to. */
__attribute__((naked, noinline)) static uint32_t on_stack(
    uint32_t entry, const uint32_t *first, uint32_t *stack, uint32_t *volatile *kept) {
  __asm__ volatile(
      "push {r3-r11, lr}\n str sp, [r3]\n msr psp, r2\n"
      "mov r4, r0\n movs r0, #2\n msr control, r0\n isb\n"
      "ldm r1, {r0-r3}\n blx r4\n"
      "movs r1, #0\n msr control, r1\n isb\n"
      /* The call is over: what interrupts from now on must not end it. */
      "ldr r2, [sp]\n str r1, [r2]\n pop {r3-r11, pc}");
}

/* Where calls end that do not return. */
__attribute__((naked, used)) void call_ended(void) { __asm__ volatile("pop {r3-r11, pc}"); }

/* Counts from now on; a short limit is one interrupt, a long one some of the longest periods. */
static void start_counter(uint64_t limit) {
  int is_short = limit && limit < FULL;
  period = is_short ? (uint32_t)limit : FULL;
  wraps = 0;
  wraps_allowed = is_short ? 1 : limit ? (limit >> 24) + 1 : 0;
  SYSTICK_RELOAD = period;
  SYSTICK_VALUE = 0;
  SYSTICK_CONTROL = 7;
  /* It is zero until the first tick. */
  while (!SYSTICK_VALUE) continue;
}

uint64_t machine_ticks(void) {
  uint32_t before, value;
  do {
    before = wraps;
    value = SYSTICK_VALUE;
  } while (before != wraps);
  return (uint64_t)before * (period + 1ull) + (period - value);
}

struct outcome machine_call(uint32_t entry, const uint32_t *words, uint64_t limit) {
  uint32_t *stack = call_stack - ARGUMENT_WORDS;
  for (uint32_t k = 4; k < ARGUMENT_WORDS; k++) stack[k - 4] = words[k];
  ended = (struct outcome){0};
  start_counter(limit);
  uint64_t begin = machine_ticks();
  uint32_t value = on_stack(entry, words, stack, &kept_stack);
  uint64_t end = machine_ticks();
  kept_stack = 0;
  SYSTICK_CONTROL = 0;
  ended.value = value;
  ended.ticks = end - begin;
  return ended;
}

/* ---- start ----------------------------------------------------------------------------------- */

void start(void) {
  COPROCESSORS |= 0xfu << 20;
  __asm__ volatile("dsb\n isb" ::: "memory");
  for (uint32_t *p = bss_start; p < bss_end; p++) *p = 0;
  monitor_main();
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))main_stack, start,    on_fault, on_fault, on_fault, on_fault,
    on_fault,                   on_fault, 0,        0,        0,        on_fault,
    on_fault,                   0,        on_fault, on_tick};
