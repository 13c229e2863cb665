/* RISC-V with 32 bits, in machine mode: start, traps, the counter of cycles, calls.

   What is called has a stack of its own. A trap ends the call: the handler goes to behind it, with
   the registers that the monitor had. So does the interrupt of the machine's timer, for calls that
   take too long; it is let in while something is called, and at no other time. */
#include "monitor.h"

extern uint32_t bss_start[], bss_end[], call_stack[];

/* The timer counts up, TIMER_CLOCK times a second, and interrupts from a number on. */
#define TIME ((volatile uint32_t *)(TIMER_ADDRESS + 0xbff8u))
#define TIME_LIMIT ((volatile uint32_t *)(TIMER_ADDRESS + 0x4000u))
#define TICKS_OF_TIME (CLOCK / TIMER_CLOCK)
enum { TIMER_INTERRUPT = 1 << 7 };
#define TIMER_CAUSE 0x80000007u

const uint16_t machine_number = 243;

/* The monitor's stack during a call; 0 where there is none. */
uint32_t *volatile kept_stack;
static struct outcome ended;

void __attribute__((used)) fault_seen(void) {
  __asm__ volatile("csrr %0, mcause\n csrr %1, mepc\n csrr %2, mtval"
                   : "=r"(ended.cause), "=r"(ended.place), "=r"(ended.address));
  ended.reason = ended.cause == TIMER_CAUSE ? TOO_LONG : FAULT;
  if (ended.reason == TOO_LONG) ended.cause = ended.address = 0;
}

/* A fault of the monitor itself starts it anew. */
__attribute__((naked, aligned(4))) static void on_fault(void) {
  __asm__ volatile(
      "la sp, kept_stack\n lw sp, 0(sp)\n bnez sp, 1f\n j start\n"
      "1: call fault_seen\n j call_ended");
}

/* Calls `entry` with eight words in registers, and the others where `stack` points to. */
__attribute__((naked, noinline)) static uint32_t on_stack(
    uint32_t entry, const uint32_t *first, uint32_t *stack, uint32_t *volatile *kept) {
  __asm__ volatile(
      "addi sp, sp, -64\n sw ra, 0(sp)\n sw s0, 4(sp)\n sw s1, 8(sp)\n sw s2, 12(sp)\n"
      "sw s3, 16(sp)\n sw s4, 20(sp)\n sw s5, 24(sp)\n sw s6, 28(sp)\n sw s7, 32(sp)\n"
      "sw s8, 36(sp)\n sw s9, 40(sp)\n sw s10, 44(sp)\n sw s11, 48(sp)\n"
      "sw sp, 0(a3)\n mv sp, a2\n mv t0, a0\n mv t1, a1\n"
      "lw a0, 0(t1)\n lw a1, 4(t1)\n lw a2, 8(t1)\n lw a3, 12(t1)\n"
      "lw a4, 16(t1)\n lw a5, 20(t1)\n lw a6, 24(t1)\n lw a7, 28(t1)\n"
      "csrsi mstatus, 8\n jalr t0\n csrci mstatus, 8\n"
      ".global call_ended\n call_ended:\n"
      "la t0, kept_stack\n lw sp, 0(t0)\n"
      "lw ra, 0(sp)\n lw s0, 4(sp)\n lw s1, 8(sp)\n lw s2, 12(sp)\n"
      "lw s3, 16(sp)\n lw s4, 20(sp)\n lw s5, 24(sp)\n lw s6, 28(sp)\n lw s7, 32(sp)\n"
      "lw s8, 36(sp)\n lw s9, 40(sp)\n lw s10, 44(sp)\n lw s11, 48(sp)\n"
      "addi sp, sp, 64\n ret");
}

void machine_synchronize(void) { __asm__ volatile("fence rw, rw\n fence.i" ::: "memory"); }

uint64_t machine_ticks(void) {
  uint32_t low, high, again;
  do
    __asm__ volatile("csrr %0, mcycleh\n csrr %1, mcycle\n csrr %2, mcycleh"
                     : "=r"(high), "=r"(low), "=r"(again));
  while (high != again);
  return (uint64_t)high << 32 | low;
}

static uint64_t time_now(void) {
  uint32_t low, high;
  do {
    high = TIME[1];
    low = TIME[0];
  } while (high != TIME[1]);
  return (uint64_t)high << 32 | low;
}

/* Have an interrupt after so many ticks of the counter; 0: none. */
static void set_limit(uint64_t limit) {
  uint64_t most = ~0ull, now = time_now();
  /* There is no division of 64 bits at hand. By a power of two the limit is up to twice as long. */
  uint32_t shift = 0;
  while ((1u << (shift + 1)) <= TICKS_OF_TIME) shift++;
  uint64_t wait = (limit >> shift) + 1, end = limit && wait < most - now ? now + wait : most;
  TIME_LIMIT[1] = ~0u;
  TIME_LIMIT[0] = (uint32_t)end;
  TIME_LIMIT[1] = (uint32_t)(end >> 32);
  uint32_t enabled = limit ? TIMER_INTERRUPT : 0;
  __asm__ volatile("csrw mie, %0" ::"r"(enabled));
}

struct outcome machine_call(uint32_t entry, const uint32_t *words, uint64_t limit) {
  uint32_t *stack = call_stack - ARGUMENT_WORDS;
  for (uint32_t k = 8; k < ARGUMENT_WORDS; k++) stack[k - 8] = words[k];
  ended = (struct outcome){0};
  set_limit(limit);
  uint64_t begin = machine_ticks();
  uint32_t value = on_stack(entry, words, stack, &kept_stack);
  uint64_t end = machine_ticks();
  kept_stack = 0;
  set_limit(0);
  ended.value = value;
  ended.ticks = end - begin;
  return ended;
}

void __attribute__((used)) begin(void) {
  for (uint32_t *p = bss_start; p < bss_end; p++) *p = 0;
  __asm__ volatile("csrw mtvec, %0\n csrwi mie, 0" ::"r"(on_fault));
  monitor_main();
}

__attribute__((section(".vectors"), naked, used)) void start(void) {
  __asm__ volatile("la sp, main_stack\n j begin");
}
