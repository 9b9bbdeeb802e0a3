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

class TorchTensorReader {
 public:
  static TensorRef read(PyTensor tensor, const char* op, const char* argument);

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
};

}  // namespace gdn

template <>
struct nanobind::detail::has_arg_defaults<gdn::PyTensor> : std::true_type {};

template <>
struct nanobind::detail::type_caster<gdn::PyTensor> {
  NB_TYPE_CASTER(gdn::PyTensor, const_name("torch.Tensor | None"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};
