/* Requests, one after the other. A request that comes again (its answer was lost) is not done again:
   the same answer is sent. */
#include "monitor.h"

/* Of the linker script: memory that hosts may use. */
extern uint8_t window_start[], window_end[];

static struct message request, answer;
/* 0: no host has said HELLO since the start. */
static uint32_t session;

/* ---- answers --------------------------------------------------------------------------------- */

static void put(uint32_t *size, uint32_t word) {
  answer.body[*size / 4] = word;
  *size += 4;
}

static void put_text(uint32_t *size, const char *text) {
  uint8_t *body = (uint8_t *)answer.body;
  while (*text) body[(*size)++] = (uint8_t)*text++;
}

static void finish(uint8_t kind, uint32_t size) {
  answer.kind = kind;
  answer.length = size;
}

static void refuse(enum reason reason, const struct outcome *outcome) {
  uint32_t size = 0;
  put(&size, reason);
  if (outcome) {
    put(&size, outcome->cause);
    put(&size, outcome->place);
    put(&size, outcome->address);
  }
  finish(REFUSAL, size);
}

static int is_inside(uint32_t address, uint32_t size) {
  uint32_t start = (uint32_t)(uintptr_t)window_start, end = (uint32_t)(uintptr_t)window_end;
  return address >= start && address <= end && size <= end - address;
}

/* ---- what hosts ask for ---------------------------------------------------------------------- */

static void on_hello(void) {
  uint32_t size = 0, start = (uint32_t)(uintptr_t)window_start;
  session = request.session;
  put(&size, 0x4d575423); /* "#TWM" */
  put(&size, VERSION | (uint32_t)machine_number << 16);
  put(&size, start);
  put(&size, (uint32_t)(uintptr_t)window_end - start);
  put(&size, BODY_BYTES | ARGUMENT_WORDS << 16);
  put(&size, CLOCK);
  put_text(&size, PROCESSOR " " BOARD);
  finish(HELLO | ANSWER, size);
}

static void on_write(void) {
  if (request.length < 4) return refuse(WRONG_LENGTH, 0);
  uint32_t size = request.length - 4;
  if (!is_inside(request.body[0], size)) return refuse(OUTSIDE, 0);
  volatile uint8_t *to = (volatile uint8_t *)(uintptr_t)request.body[0];
  const uint8_t *from = (const uint8_t *)&request.body[1];
  for (uint32_t k = 0; k < size; k++) to[k] = from[k];
  finish(WRITE | ANSWER, 0);
}

static void on_read(void) {
  if (request.length != 8 || request.body[1] > BODY_BYTES) return refuse(WRONG_LENGTH, 0);
  uint32_t size = request.body[1];
  if (!is_inside(request.body[0], size)) return refuse(OUTSIDE, 0);
  const volatile uint8_t *from = (const volatile uint8_t *)(uintptr_t)request.body[0];
  uint8_t *to = (uint8_t *)answer.body;
  for (uint32_t k = 0; k < size; k++) to[k] = from[k];
  finish(READ | ANSWER, size);
}

static void on_clear(void) {
  if (request.length != 8) return refuse(WRONG_LENGTH, 0);
  uint32_t size = request.body[1];
  if (!is_inside(request.body[0], size)) return refuse(OUTSIDE, 0);
  volatile uint8_t *to = (volatile uint8_t *)(uintptr_t)request.body[0];
  for (uint32_t k = 0; k < size; k++) to[k] = 0;
  finish(CLEAR | ANSWER, 0);
}

static void on_call(void) {
  uint32_t words[ARGUMENT_WORDS], count = request.length / 4 - 3;
  if (request.length % 4 || request.length < 12 || count > ARGUMENT_WORDS)
    return refuse(WRONG_LENGTH, 0);
  if (!is_inside(request.body[0] & ~1u, 2)) return refuse(OUTSIDE, 0);
  for (uint32_t k = 0; k < ARGUMENT_WORDS; k++) words[k] = k < count ? request.body[3 + k] : 0;
  finish(AT_WORK, 0);
  send_message(&answer);
  machine_synchronize();
  uint64_t limit = request.body[1] | (uint64_t)request.body[2] << 32;
  struct outcome outcome = machine_call(request.body[0], words, limit);
  if (outcome.reason) return refuse((enum reason)outcome.reason, &outcome);
  uint32_t size = 0;
  put(&size, outcome.value);
  put(&size, (uint32_t)outcome.ticks);
  put(&size, (uint32_t)(outcome.ticks >> 32));
  finish(CALL | ANSWER, size);
}

static void on_counter(void) {
  uint32_t size = 0;
  put(&size, (uint32_t)(uintptr_t)&machine_ticks);
  finish(COUNTER | ANSWER, size);
}

static void respond(void) {
  if (request.kind != HELLO && request.session != session) return refuse(OTHER_SESSION, 0);
  switch (request.kind) {
    case HELLO: return on_hello();
    case WRITE: return on_write();
    case READ: return on_read();
    case CLEAR: return on_clear();
    case CALL: return on_call();
    case COUNTER: return on_counter();
    default: refuse(UNKNOWN_KIND, 0);
  }
}

void monitor_main(void) {
  uint32_t last = 0;
  int has_last = 0;
  line_start();
  for (;;) {
    uint32_t check = receive_message(&request);
    int is_repeated = has_last && check == last && request.number == answer.number;
    answer.number = request.number;
    answer.session = request.session;
    if (!is_repeated) respond();
    send_message(&answer);
    last = check;
    has_last = 1;
  }
}
