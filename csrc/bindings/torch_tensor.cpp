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

// The part of DLPack 1.3's ABI that reading a borrowed tensor needs.
struct DLTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t dtype_code, dtype_bits;
  uint16_t dtype_lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct DLPackExchangeApi {
  uint32_t major_version, minor_version;
  DLPackExchangeApi* previous;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object;
  void* managed_tensor_to_py_object;
  int (*dltensor_from_py_object)(void* py_object, void* dltensor);
  void* current_work_stream;
};

constexpr uint32_t kDlpackMajorVersion = 1;

bool to_dtype(uint8_t code, uint8_t bits, DType& dtype) {
  constexpr uint8_t kInt = 0, kFloat = 2, kBfloat = 4, kBool = 6;
  if (code == kFloat && bits == 32)
    dtype = DType::f32;
  else if (code == kBfloat && bits == 16)
    dtype = DType::bf16;
  else if (code == kFloat && bits == 16)
    dtype = DType::f16;
  else if (code == kInt && bits == 32)
    dtype = DType::i32;
  else if (code == kInt && bits == 64)
    dtype = DType::i64;
  else if (code == kBool && bits == 8)
    dtype = DType::boolean;
  else
    return false;
  return true;
}

bool to_device(int32_t type, Device& device) {
  constexpr int32_t kCpu = 1, kCuda = 2;
  device = type == kCuda ? Device::cuda : Device::cpu;
  return type == kCpu || type == kCuda;
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
  requires_grad_ = intern("requires_grad");
  const nb::object torch = nb::module_::import_("torch");
  const nb::object tensor_type = torch.attr("Tensor");
  tensor_type_ = tensor_type.inc_ref().ptr();
  is_grad_enabled_ = nb::object(torch.attr("is_grad_enabled")).release().ptr();
  if (nb::hasattr(tensor_type, "__dlpack_c_exchange_api__")) {
    const nb::object capsule = tensor_type.attr("__dlpack_c_exchange_api__");
    const auto* api = static_cast<const DLPackExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (!api)
      PyErr_Clear();
    else if (api->major_version == kDlpackMajorVersion)
      borrow_dltensor_ = api->dltensor_from_py_object;
  }
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

bool TorchTensorReader::read_exchange_table(PyObject* tensor, TensorRef& ref) const {
  DLTensor borrowed;
  if (borrow_dltensor_(tensor, &borrowed) != 0) {
    PyErr_Clear();
    return false;
  }
  if (borrowed.ndim > TensorRef::kMaxDims || !to_dtype(borrowed.dtype_code, borrowed.dtype_bits, ref.dtype) ||
      !to_device(borrowed.device_type, ref.device))
    return false;
  ref.present = true;
  ref.device_index = ref.device == Device::cpu ? 0 : borrowed.device_id;
  ref.ndim = borrowed.ndim;
  for (int i = 0; i < borrowed.ndim; ++i) {
    ref.shape[i] = borrowed.shape[i];
    ref.stride[i] = borrowed.strides[i];
  }
  ref.data = static_cast<char*>(borrowed.data) + borrowed.byte_offset;
  return true;
}

TensorRef TorchTensorReader::read(PyTensor tensor, const char* op, const char* argument) {
  TensorRef ref;
  if (tensor.object.is_none()) return ref;
  const TorchTensorReader& reader = instance();
  const bool is_tensor = PyObject_TypeCheck(tensor.object.ptr(), reinterpret_cast<PyTypeObject*>(reader.tensor_type_));
  if (!is_tensor)
    throw ArgumentError(ErrorKind::type, op, argument,
                        std::string("must be a torch.Tensor; got ") + nb::type_name(tensor.object.type()).c_str());
  if (reader.borrow_dltensor_ && reader.read_exchange_table(tensor.object.ptr(), ref)) return ref;
  return reader.read_attributes(tensor.object, op, argument);
}

bool TorchTensorReader::grad_enabled() {
  PyObject* enabled = PyObject_CallNoArgs(instance().is_grad_enabled_);
  if (!enabled) throw nb::python_error();
  return nb::steal(enabled).ptr() == Py_True;
}

bool TorchTensorReader::requires_grad(PyTensor tensor) {
  return attribute(tensor.object, instance().requires_grad_).ptr() == Py_True;
}

TensorRef ArgumentReader::tensor(const char* name, PyTensor tensor) const {
  const TensorRef ref = TorchTensorReader::read(tensor, op_, name);
  if (ref && refuses_gradients_ && TorchTensorReader::requires_grad(tensor))
    throw ArgumentError(ErrorKind::unsupported, op_, name,
                        "must not require a gradient (inference only; use torch.no_grad()); got requires_grad");
  return ref;
}

int64_t ArgumentReader::integer(const char* name, PyNumber number) const {
  if (PyLong_Check(number.object.ptr())) {
    const int64_t value = PyLong_AsLongLong(number.object.ptr());
    if (!PyErr_Occurred()) return value;
    PyErr_Clear();
  }
  throw ArgumentError(ErrorKind::type, op_, name,
                      std::string("must be an integer; got ") + nb::repr(number.object).c_str());
}

double ArgumentReader::real(const char* name, PyNumber number) const {
  if (PyFloat_Check(number.object.ptr()) || PyLong_Check(number.object.ptr())) {
    const double value = PyFloat_AsDouble(number.object.ptr());
    if (!PyErr_Occurred()) return value;
    PyErr_Clear();
  }
  throw ArgumentError(ErrorKind::type, op_, name,
                      std::string("must be a number; got ") + nb::repr(number.object).c_str());
}

TensorRef TorchTensorReader::read_attributes(nb::handle tensor, const char* op, const char* argument) const {
  TensorRef ref;
  ref.present = true;
  ref.dtype = dtype_of(attribute(tensor, dtype_).ptr(), op, argument);
  if (attribute(tensor, is_cpu_).ptr() != Py_True) {
    const nb::object device = attribute(tensor, device_);
    const std::string type = nb::cast<std::string>(attribute(device, type_));
    if (type != "cuda" && type != "npu")
      throw ArgumentError(ErrorKind::value, op, argument, "must be on cpu, cuda or npu; got " + type);
    ref.device = type == "cuda" ? Device::cuda : Device::npu;
    const nb::object index = attribute(device, index_);
    ref.device_index = index.is_none() ? 0 : nb::cast<int32_t>(index);
  }
  const nb::object shape = attribute(tensor, shape_), stride = call(tensor, stride_);
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
  ref.data = PyLong_AsVoidPtr(call(tensor, data_ptr_).ptr());
  return ref;
}

}  // namespace gdn
