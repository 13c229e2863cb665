// Models for C++: a thin wrapper of tilewright.h, which throws where that returns false.
#ifndef TILEWRIGHT_HPP
#define TILEWRIGHT_HPP

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tilewright.h"

namespace tilewright {

class Error : public std::runtime_error {
 public:
  explicit Error(const tw_error &error) : std::runtime_error(error.text) {}
};

// Arrays that a model has made; their memory goes with this object.
class Arrays {
 public:
  explicit Arrays(std::size_t count) : arrays_(count) {}
  Arrays(Arrays &&other) noexcept { arrays_.swap(other.arrays_); }
  Arrays(const Arrays &) = delete;
  Arrays &operator=(const Arrays &) = delete;
  ~Arrays() { tw_arrays_free(arrays_.data(), static_cast<int32_t>(arrays_.size())); }

  std::size_t size() const { return arrays_.size(); }
  const tw_array &operator[](std::size_t number) const { return arrays_.at(number); }
  tw_array *data() { return arrays_.data(); }
  // The elements of one, as the type that it has.
  template <typename T>
  const T *elements(std::size_t number) const {
    return static_cast<const T *>(arrays_.at(number).data);
  }

 private:
  std::vector<tw_array> arrays_;
};

// An array of the caller's, which must live as long as it is used.
inline tw_array array(const char *type, const std::vector<int64_t> &shape, void *data) {
  if (shape.size() > TW_MAX_RANK) throw std::invalid_argument("an array has too many dimensions");
  tw_array made = {};
  made.type = type;
  made.rank = static_cast<int32_t>(shape.size());
  for (std::size_t k = 0; k < shape.size(); k++) made.shape[k] = shape[k];
  made.data = data;
  return made;
}

class Model {
 public:
  explicit Model(const std::string &path, int32_t threads = 0) {
    tw_model *made = nullptr;
    tw_error error;
    if (!tw_model_open(path.c_str(), threads, &made, &error)) throw Error(error);
    model_.reset(made);
  }

  int32_t input_count() const { return tw_model_input_count(model_.get()); }
  int32_t output_count() const { return tw_model_output_count(model_.get()); }
  const tw_tensor &input(int32_t number) const { return *tw_model_input(model_.get(), number); }
  const tw_tensor &output(int32_t number) const { return *tw_model_output(model_.get(), number); }
  std::string target() const { return tw_model_target(model_.get()); }

  Arrays run(const std::vector<tw_array> &inputs) {
    require(inputs);
    Arrays outputs(static_cast<std::size_t>(output_count()));
    tw_error error;
    if (!tw_model_run(model_.get(), inputs.data(), outputs.data(), &error)) throw Error(error);
    return outputs;
  }

  tw_timing time(const std::vector<tw_array> &inputs, int32_t repeat = 20,
                 double min_seconds = 0.05, int32_t warmup = 2) {
    require(inputs);
    tw_timing timing;
    tw_error error;
    if (!tw_model_time(model_.get(), inputs.data(), repeat, min_seconds, warmup, &timing, &error))
      throw Error(error);
    return timing;
  }

 private:
  void require(const std::vector<tw_array> &inputs) const {
    if (inputs.size() != static_cast<std::size_t>(input_count()))
      throw std::invalid_argument("the model takes another number of inputs");
  }

  struct Close {
    void operator()(tw_model *model) const { tw_model_close(model); }
  };
  std::unique_ptr<tw_model, Close> model_;
};

}  // namespace tilewright
#endif
