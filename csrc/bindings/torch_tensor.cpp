#include "bindings/torch_tensor.hpp"

#include <nanobind/stl/string.h>

#include <string>

namespace nb = nanobind;

namespace gdn {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::boolean};

nb::object attribute(nb::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (!value) throw nb::python_error();
  return nb::steal(value);
}

nb::object call(nb::handle object, PyObject* name) {
  PyObject* arguments[] = {object.ptr()};
  PyObject* value = PyObject_VectorcallMethod(name, arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (!value) throw nb::python_error();
  return nb::steal(value);
}

int64_t int_at(nb::handle tuple, Py_ssize_t i) {
  PyObject* item = PyTuple_GetItem(tuple.ptr(), i);
  if (!item) throw nb::python_error();
  return PyLong_AsLongLong(item);
}

}  // namespace

TorchTensorReader::TorchTensorReader() {
  const auto intern = [](const char* text) { return PyUnicode_InternFromString(text); };
  data_ptr_ = intern("data_ptr");
  dtype_ = intern("dtype");
  shape_ = intern("shape");
  stride_ = intern("stride");
  is_cpu_ = intern("is_cpu");
  device_ = intern("device");
  type_ = intern("type");
  index_ = intern("index");
  const nb::object torch = nb::module_::import_("torch");
  for (DType dtype : kDTypes)
    torch_dtypes_[static_cast<int>(dtype)] = nb::object(torch.attr(to_string(dtype))).release().ptr();
}

const TorchTensorReader& TorchTensorReader::instance() {
  static const TorchTensorReader* reader = new TorchTensorReader();  // its references outlive the interpreter
  return *reader;
}

DType TorchTensorReader::dtype_of(PyObject* dtype, const char* op, const char* argument) const {
  for (DType candidate : kDTypes)
    if (torch_dtypes_[static_cast<int>(candidate)] == dtype) return candidate;
  throw ArgumentError(ErrorKind::type, op, argument,
                      std::string("must be float32, bfloat16, float16, int32, int64 or bool; got ") +
                          nb::str(nb::handle(dtype)).c_str());
}

TensorRef TorchTensorReader::read(PyTensor py_tensor, const char* op, const char* argument) {
  const nb::handle tensor = py_tensor.object;
  TensorRef ref;
  if (tensor.is_none()) return ref;
  const TorchTensorReader& names = instance();
  if (!PyObject_HasAttr(tensor.ptr(), names.data_ptr_))
    throw ArgumentError(ErrorKind::type, op, argument,
                        std::string("must be a torch.Tensor; got ") + nb::type_name(tensor.type()).c_str());
  ref.present = true;
  ref.dtype = names.dtype_of(attribute(tensor, names.dtype_).ptr(), op, argument);
  if (attribute(tensor, names.is_cpu_).ptr() != Py_True) {
    const nb::object device = attribute(tensor, names.device_);
    const std::string type = nb::cast<std::string>(attribute(device, names.type_));
    if (type != "cuda" && type != "npu")
      throw ArgumentError(ErrorKind::value, op, argument, "must be on cpu, cuda or npu; got " + type);
    ref.device = type == "cuda" ? Device::cuda : Device::npu;
    const nb::object index = attribute(device, names.index_);
    ref.device_index = index.is_none() ? 0 : nb::cast<int32_t>(index);
  }
  const nb::object shape = attribute(tensor, names.shape_), stride = call(tensor, names.stride_);
  const Py_ssize_t ndim = PyTuple_Size(shape.ptr());
  if (ndim > TensorRef::kMaxDims)
    throw ArgumentError(
        ErrorKind::value, op, argument,
        "must have at most " + std::to_string(TensorRef::kMaxDims) + " dimensions; got " + std::to_string(ndim));
  ref.ndim = static_cast<int32_t>(ndim);
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    ref.shape[i] = int_at(shape, i);
    ref.stride[i] = int_at(stride, i);
  }
  ref.data = PyLong_AsVoidPtr(call(tensor, names.data_ptr_).ptr());
  return ref;
}

}  // namespace gdn
