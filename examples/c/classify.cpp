// Runs an exported model from C++ on DLPack tensors, whose types and shapes are checked.
//
//   python examples/c/export.py           writes classifier.a and classifier.h
//   c++ classify.cpp classifier.a -lpthread -o classify && ./classify 4
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "classifier.h"

struct Matrix {
  std::vector<float> data;
  int64_t shape[2];

  Matrix(int64_t rows, int64_t columns) : data(rows * columns), shape{rows, columns} {}

  DLTensor tensor() {
    return {data.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
  }
};

static int run(Matrix &in, Matrix &out) {
  DLTensor x = in.tensor(), y = out.tensor();
  DLTensor *inputs[] = {&x}, *outputs[] = {&y};
  if (classifier_run_dlpack(inputs, outputs) == 0) return 0;
  std::fprintf(stderr, "%s\n", classifier_error());
  return 1;
}

int main(int argc, char **argv) {
  int64_t rows = argc > 1 ? std::atoll(argv[1]) : 4;
  Matrix x(rows, 24), wrong(rows, 11);
  for (size_t k = 0; k < x.data.size(); ++k) x.data[k] = float(k % 7) / 7 - 0.4f;
  if (run(x, wrong) == 0) return 1;  // an output of another shape is refused

  // Threads of the program may run the model at once.
  std::vector<Matrix> results(3, Matrix(rows, 10));
  std::vector<std::thread> threads;
  for (auto &y : results) threads.emplace_back([&] { run(x, y); });
  for (auto &t : threads) t.join();
  for (auto &y : results)
    if (y.data != results[0].data) return 1;
  for (float v : results[0].data) std::printf("%a\n", v);
  classifier_free();
}
