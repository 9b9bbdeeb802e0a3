#pragma once

#include <nanobind/nanobind.h>

#include "core/error.hpp"
#include "core/tensor_ref.hpp"

// Reads pointer, shape, strides, dtype and device of a torch.Tensor. Nothing is converted or copied, so a kernel writes
// to the caller's memory, and no libtorch is linked. Where torch offers DLPack's C exchange table (1.3), that is used:
// some ten times faster than the tensor's Python attributes, which serve older releases and whatever the table refuses.
namespace gdn {

// Any Python object, None included; TorchTensorReader names the argument that is not a tensor.
struct PyTensor {
  nanobind::handle object;
};

// Any Python object; ArgumentReader names the argument that is not a number.
struct PyNumber {
  nanobind::handle object;
};

class TorchTensorReader {
 public:
  static TensorRef read(PyTensor tensor, const char* op, const char* argument);
  static bool grad_enabled();
  static bool requires_grad(PyTensor tensor);

 private:
  TorchTensorReader();
  static const TorchTensorReader& instance();
  DType dtype_of(PyObject* dtype, const char* op, const char* argument) const;
  bool read_exchange_table(PyObject* tensor, TensorRef& ref) const;
  TensorRef read_attributes(nanobind::handle tensor, const char* op, const char* argument) const;

  int (*borrow_dltensor_)(void* tensor, void* dltensor) = nullptr;
  PyObject* tensor_type_;
  PyObject* data_ptr_;
  PyObject* dtype_;
  PyObject* shape_;
  PyObject* stride_;
  PyObject* is_cpu_;
  PyObject* device_;
  PyObject* type_;
  PyObject* index_;
  PyObject* torch_dtypes_[6];
  PyObject* is_grad_enabled_;
  PyObject* requires_grad_;
};

// The arguments of one call, refused by name where they have the wrong type or want a gradient.
class ArgumentReader {
 public:
  explicit ArgumentReader(const char* op) : op_(op), refuses_gradients_(TorchTensorReader::grad_enabled()) {}

  TensorRef tensor(const char* name, PyTensor tensor) const;  // not present where the argument is None
  int64_t integer(const char* name, PyNumber number) const;
  double real(const char* name, PyNumber number) const;

 private:
  const char* op_;
  bool refuses_gradients_;
};

}  // namespace gdn

template <>
struct nanobind::detail::has_arg_defaults<gdn::PyTensor> : std::true_type {};
template <>
struct nanobind::detail::has_arg_defaults<gdn::PyNumber> : std::true_type {};

template <>
struct nanobind::detail::type_caster<gdn::PyTensor> {
  NB_TYPE_CASTER(gdn::PyTensor, const_name("torch.Tensor | None"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};

template <>
struct nanobind::detail::type_caster<gdn::PyNumber> {
  NB_TYPE_CASTER(gdn::PyNumber, const_name("float | None"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};
