/* The serial port of Arm's CMSDK, as on MPS2 boards. */
#include "monitor.h"

#define REGISTER(offset) (*(volatile uint32_t *)(LINE_ADDRESS + (offset)))
#define DATA REGISTER(0)
#define STATE REGISTER(4)
#define CONTROL REGISTER(8)
#define DIVIDER REGISTER(16)

enum { SENDING = 1, RECEIVED = 2 };

void line_start(void) {
  DIVIDER = CLOCK / BAUD;
  CONTROL = 3;
}

uint8_t line_read(void) {
  while (!(STATE & RECEIVED)) continue;
  return (uint8_t)DATA;
}

void line_write(uint8_t byte) {
  while (STATE & SENDING) continue;
  DATA = byte;
}
