#pragma once

#include <nanobind/nanobind.h>

#include "core/error.hpp"
#include "core/tensor_ref.hpp"

// Reads a torch.Tensor through its Python interface: pointer, shape, strides, dtype, device. Nothing is converted or
// copied, so a kernel writes to the caller's memory, and no libtorch is linked.
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
