/* What a board offers to the program that runs a model: a way out, files of the machine that
   debugs it (semihosting), and a count of instructions. */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include <stdint.h>

/* The model's tensors, and how it is called: written for each model. */
struct tensor {
  void *data;
  uint32_t size;
};
extern const struct tensor model_inputs[], model_outputs[];
extern const uint32_t model_input_count, model_output_count;
int32_t model_run(void);

/* One request to the debugging machine; what it answers. */
int32_t semihost(uint32_t operation, const void *argument);

void counter_start(void);
/* Instructions since then, as exactly as the board can tell. */
uint64_t counter_read(void);

int firmware_main(void);

#endif
