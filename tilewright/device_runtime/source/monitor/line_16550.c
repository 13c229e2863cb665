/* The serial port of PCs, the 16550, as on RISC-V's `virt`; its registers are bytes. */
#include "monitor.h"

#define REGISTER(offset) (*(volatile uint8_t *)(LINE_ADDRESS + (offset)))
#define DATA REGISTER(0)
#define BUFFERS REGISTER(2)
#define FORM REGISTER(3)
#define STATE REGISTER(5)

enum { RECEIVED = 1, CAN_SEND = 0x20 };

/* Whoever started the board has set the speed. */
void line_start(void) {
  FORM = 3;
  BUFFERS = 7;
}

uint8_t line_read(void) {
  while (!(STATE & RECEIVED)) continue;
  return DATA;
}

void line_write(uint8_t byte) {
  while (!(STATE & CAN_SEND)) continue;
  DATA = byte;
}
