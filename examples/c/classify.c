/* Runs an exported model from C: no Python, no runtime to ship.

   python examples/c/export.py           writes classifier.a and classifier.h
   cc classify.c classifier.a -lpthread -o classify && ./classify 4
*/
#include <stdio.h>
#include <stdlib.h>

#include "classifier.h"

enum { FEATURES = 24, CLASSES = 10 };

int main(int argc, char **argv) {
  int64_t rows = argc > 1 ? atoll(argv[1]) : 4;
  float *x = malloc(sizeof(float) * rows * FEATURES);
  float *y = malloc(sizeof(float) * rows * CLASSES);
  if (!x || !y) return 1;
  for (int64_t k = 0; k < rows * FEATURES; ++k) x[k] = (float)(k % 7) / 7 - 0.4f;

  const void *inputs[CLASSIFIER_INPUTS] = {x};
  void *outputs[CLASSIFIER_OUTPUTS] = {y};
  classifier_init(2);
  if (classifier_run(inputs, outputs, &rows)) {
    fprintf(stderr, "%s\n", classifier_error());
    return 1;
  }
  for (int64_t k = 0; k < rows * CLASSES; ++k) printf("%a\n", y[k]);
  classifier_free();
  free(x);
  free(y);
  return 0;
}
