/* Runs an artifact from C, on inputs of ones.

   tilewright export --format runtime -o libtilewright.a      writes the library and tilewright.h
   cc run.c libtilewright.a -lm -lpthread -o run && ./run model.twm
*/
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

enum { MOST = 16 };

int main(int argc, char **argv) {
  tw_model *model;
  tw_error error;
  if (argc < 2 || !tw_model_open(argv[1], 0, &model, &error)) {
    fprintf(stderr, "%s\n", argc < 2 ? "usage: run MODEL.twm" : error.text);
    return 1;
  }
  tw_array inputs[MOST] = {{0}}, outputs[MOST] = {{0}};
  int32_t takes = tw_model_input_count(model), gives = tw_model_output_count(model);
  if (takes > MOST || gives > MOST) return 1;
  for (int32_t k = 0; k < takes; k++) {
    const tw_tensor *wanted = tw_model_input(model, k);
    inputs[k].type = wanted->type;
    inputs[k].rank = wanted->rank;
    for (int32_t axis = 0; axis < wanted->rank; axis++)
      inputs[k].shape[axis] = wanted->shape[axis] < 0 ? 1 : wanted->shape[axis];
    int64_t count = tw_array_elements(&inputs[k]);
    float *data = calloc((size_t)count + 1, 8);
    if (!data) return 1;
    for (int64_t n = 0; n < count; n++) data[n] = 1;
    inputs[k].data = data;
  }
  if (!tw_model_run(model, inputs, outputs, &error)) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  for (int32_t k = 0; k < gives; k++) {
    printf("%s\n", tw_model_output(model, k)->text);
    for (int64_t n = 0; n < tw_array_elements(&outputs[k]); n++)
      printf("%a\n", ((const float *)outputs[k].data)[n]);
  }
  tw_arrays_free(inputs, takes);
  tw_arrays_free(outputs, gives);
  tw_model_close(model);
  return 0;
}
