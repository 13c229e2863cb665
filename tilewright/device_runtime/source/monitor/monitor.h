/* The monitor: lets a host load code into a board's memory over a serial line, call it, and count
   cycles. `docs/serial_protocol.md` is the protocol. A port to another board is a linker script, and
   the functions of `machine` (arm.c, riscv.c) and `line` (line_*.c) below. */
#ifndef MONITOR_H
#define MONITOR_H

#include <stdint.h>

enum { VERSION = 1 };

/* Bytes of the body of a message, at most; hosts are told. */
#ifndef BODY_BYTES
#define BODY_BYTES 1024u
#endif
/* What a message has beside its body. */
#define HEAD_BYTES 12u
#define CHECK_BYTES 4u
/* Words that a function is called with: it takes as many of them as it likes. */
#define ARGUMENT_WORDS 16u

enum kind { HELLO = 1, WRITE = 2, READ = 3, CLEAR = 4, CALL = 5, COUNTER = 6 };
/* An answer has the kind of its request and this bit. */
enum { ANSWER = 0x80, AT_WORK = 0x40, REFUSAL = 0x7f };
enum reason {
  UNKNOWN_KIND = 1,
  WRONG_LENGTH = 2,
  OUTSIDE = 3,
  FAULT = 4,
  TOO_LONG = 5,
  OTHER_SESSION = 6
};

/* A message without its check; the length is that of the body. The session is what the last HELLO
   said: a board that was reset has none, so that nobody takes what is in its memory for his own. */
struct message {
  uint8_t kind, zero;
  uint16_t number;
  uint32_t session, length;
  uint32_t body[(BODY_BYTES + CHECK_BYTES) / 4];
};

/* How a call ended: a reason why it did not return, or 0. */
struct outcome {
  uint32_t reason, value;
  uint32_t cause, place, address;
  uint64_t ticks;
};

/* ---- frames: messages on the line ----------------------------------------------------------- */

/* Waits for a whole message; what is damaged is dropped. Returns its check. */
uint32_t receive_message(struct message *message);
/* Sends a message, whose check goes behind its body. */
void send_message(struct message *message);

/* ---- machine: one for each kind of processor ------------------------------------------------- */

/* The number of the architecture in ELF files. */
extern const uint16_t machine_number;
/* Calls what lies at an address, on a stack of its own; the cause of a fault is that of the
   processor's registers. A call that takes more ticks than `limit` is ended where the processor can;
   0: none. */
struct outcome machine_call(uint32_t entry, const uint32_t *words, uint64_t limit);
/* The ticks of the counter since the call under way began, or since any time before; what is called
   may call it. */
uint64_t machine_ticks(void);
/* Lets instructions be fetched that were just written. */
void machine_synchronize(void);

/* ---- line: one for each kind of serial port -------------------------------------------------- */

void line_start(void);
uint8_t line_read(void);
void line_write(uint8_t byte);

void monitor_main(void);

#endif
