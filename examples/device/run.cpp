// Runs an artifact with one float32 input from C++, on ones, and tells how long it takes.
//
//   tilewright export --format runtime -o libtilewright.a      writes the library and its headers
//   c++ run.cpp libtilewright.a -lm -lpthread -o run && ./run model.twm
#include <cstdio>
#include <vector>

#include "tilewright.hpp"

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  try {
    tilewright::Model model(argv[1], 2);
    const tw_tensor &wanted = model.input(0);
    std::vector<int64_t> shape(wanted.shape, wanted.shape + wanted.rank);
    std::size_t count = 1;
    for (int64_t &extent : shape) count *= static_cast<std::size_t>(extent = extent < 0 ? 1 : extent);
    std::vector<float> x(count, 1.0f);
    std::vector<tw_array> inputs = {tilewright::array("float32", shape, x.data())};
    tilewright::Arrays outputs = model.run(inputs);
    for (int64_t k = 0; k < tw_array_elements(&outputs[0]); k++)
      std::printf("%a\n", static_cast<double>(outputs.elements<float>(0)[k]));
    std::fprintf(stderr, "%.3g s\n", model.time(inputs, 3, 1e-3).median);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
