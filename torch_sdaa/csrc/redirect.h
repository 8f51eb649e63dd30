// Redirection of CUDA's names, switched on by torch_sdaa.contrib.transfer_to_sdaa and off by restore().
//
// Functions keep their identity: only the C function behind them is replaced, so that names imported earlier by a script,
// torch.overrides, dynamo and pickled references see the same objects. A call without a device name costs a check of its
// arguments; functions without arguments are not changed.
#pragma once
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>
#include "common.h"

namespace sdaa::redirect {

constexpr size_t kSlots = 320;

struct Slot {
  std::string name;
  PyMethodDef mine{};                 // target of the function while it is redirected
  PyMethodDef* theirs = nullptr;      // its previous target
  PyMethodDef** where = nullptr;      // the function's pointer
  newfunc make = nullptr;             // of a type: its previous constructor
  PyTypeObject* type = nullptr;
  Py_ssize_t bare = -1;               // with this number of arguments and no device it means CUDA
  bool kind = false;                  // of Tensor.type, which returns a name
  uint64_t count = 0;                 // calls in which a name was redirected; under the interpreter's lock
};
inline std::array<Slot, kSlots> slots;
inline size_t used = 0;
inline uint64_t asked_kind = 0, asked_is_cuda = 0, asked_text = 0;  // how often code outside of torch got "cuda"

// ------------------------------------------------------------------------------------------------------------- names

// Returns the replacement of an argument, as a new reference; nullptr if it is unchanged, or if an error is set.
inline PyObject* other(PyObject* value) {
  if (PyUnicode_Check(value)) {
    const auto length = PyUnicode_GET_LENGTH(value);
    if (length < 4) return nullptr;
    const auto first = PyUnicode_READ_CHAR(value, 0);
    if (first != 'c' && first != 't') return nullptr;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    if (!text) {
      PyErr_Clear();  // a lone surrogate: not a device's name
      return nullptr;
    }
    if (!std::strncmp(text, "cuda", 4) && (text[4] == 0 || text[4] == ':')) return PyUnicode_FromFormat("sdaa%s", text + 4);
    if (!std::strncmp(text, "torch.cuda.", 11)) return PyUnicode_FromFormat("torch.sdaa.%s", text + 11);
    return nullptr;
  }
  if (THPDevice_Check(value)) {  // created before the redirection
    const auto& device = reinterpret_cast<THPDevice*>(value)->device;
    if (device.type() == c10::DeviceType::CUDA) return THPDevice_New(Device(kSdaa, device.index()));
  }
  return nullptr;
}

struct Arguments {  // of a call, with other names if needed
  PyObject *args, *kwargs;
  bool changed = false;
  Arguments(PyObject* a, PyObject* k, Py_ssize_t bare = -1) : args(a), kwargs(k) {
    Py_XINCREF(args);
    Py_XINCREF(kwargs);
    const Py_ssize_t n = args ? PyTuple_GET_SIZE(args) : 0;
    if (n == bare && (!k || !PyDict_GET_SIZE(k))) {
      Py_DECREF(args);
      args = PyTuple_New(n + 1);
      PyTuple_SET_ITEM(args, 0, PyUnicode_FromString("sdaa"));
      for (Py_ssize_t j = 0; j < n; j++) PyTuple_SET_ITEM(args, j + 1, Py_NewRef(PyTuple_GET_ITEM(a, j)));
      changed = true;
      return;
    }
    for (Py_ssize_t i = 0; i < n; i++)
      if (PyObject* value = other(PyTuple_GET_ITEM(a, i))) {
        if (args == a) {
          Py_DECREF(args);
          args = PyTuple_New(n);
          for (Py_ssize_t j = 0; j < n; j++) PyTuple_SET_ITEM(args, j, Py_NewRef(PyTuple_GET_ITEM(a, j)));
        }
        PyObject* old = PyTuple_GET_ITEM(args, i);
        PyTuple_SET_ITEM(args, i, value);
        Py_DECREF(old);
        changed = true;
      }
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (k && PyDict_Next(k, &at, &key, &item))
      if (PyObject* value = other(item)) {
        if (kwargs == k) {
          Py_DECREF(kwargs);
          kwargs = PyDict_Copy(k);
        }
        PyDict_SetItem(kwargs, key, value);
        Py_DECREF(value);
        changed = true;
      }
  }
  ~Arguments() {
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
  }
};

// -------------------------------------------------------------------------------------------------- functions, methods

// Whether the running code belongs neither to torch nor to this package.
inline bool asked_from_outside() {
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  PyObject* globals = PyEval_GetGlobals();
  PyObject* name = globals ? PyDict_GetItemWithError(globals, key) : nullptr;
  if (!name || !PyUnicode_Check(name)) return globals != nullptr;
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) {
    PyErr_Clear();
    return true;
  }
  if (std::strncmp(text, "torch", 5)) return true;
  const char* rest = std::strncmp(text + 5, "_sdaa", 5) ? text + 5 : text + 10;
  return *rest != 0 && *rest != '.';
}

// Returns a tensor's type name for code outside of torch: "torch.cuda.FloatTensor". Steals the reference.
inline PyObject* outside_name(Slot& slot, PyObject* name) {
  const char* text = asked_from_outside() ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text || std::strncmp(text, "torch.sdaa.", 11)) return name;
  slot.count++;
  PyObject* other = PyUnicode_FromFormat("torch.cuda.%s", text + 11);
  Py_DECREF(name);
  return other;
}

template <size_t N>
PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  Slot& slot = slots[N];
  Arguments given(args, kwargs, slot.bare);
  slot.count += given.changed;
  PyObject* result = slot.theirs->ml_flags & METH_KEYWORDS
      ? reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(slot.theirs->ml_meth))(self, given.args, given.kwargs)
      : slot.theirs->ml_meth(self, given.args);
  return slot.kind && result && PyUnicode_Check(result) ? outside_name(slot, result) : result;
}
template <size_t N>
PyObject* call_one(PyObject* self, PyObject* value) {  // of METH_O
  Slot& slot = slots[N];
  PyObject* mine = other(value);
  slot.count += mine != nullptr;
  PyObject* result = slot.theirs->ml_meth(self, mine ? mine : value);
  Py_XDECREF(mine);
  return result;
}
template <size_t N>
PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  Slot& slot = slots[N];
  Arguments given(args, kwargs);
  slot.count += given.changed;
  return slot.make(type, given.args, given.kwargs);
}

template <size_t... N>
constexpr auto calls_of(std::index_sequence<N...>) { return std::array<PyCFunctionWithKeywords, sizeof...(N)>{&call<N>...}; }
template <size_t... N>
constexpr auto ones_of(std::index_sequence<N...>) { return std::array<PyCFunction, sizeof...(N)>{&call_one<N>...}; }
template <size_t... N>
constexpr auto news_of(std::index_sequence<N...>) { return std::array<newfunc, sizeof...(N)>{&construct<N>...}; }
inline const auto calls = calls_of(std::make_index_sequence<kSlots>{});
inline const auto ones = ones_of(std::make_index_sequence<kSlots>{});
inline const auto news = news_of(std::make_index_sequence<kSlots>{});

// Returns the index of the slot that matches a test, else of a new one. A slot always belongs to the same function, since a
// bound method that is still referenced points into it.
template <class Test>
size_t slot_for(const Test& test) {
  for (size_t i = 1; i < used; i++)
    if (test(slots[i])) return i;
  TORCH_CHECK(used < kSlots, "too many functions with device arguments");
  return used++;
}

// Redirects a function or a method of C; returns whether its kind is supported.
inline bool function(const std::string& name, py::handle object, Py_ssize_t bare) {
  PyMethodDef** where = nullptr;
  if (PyCFunction_Check(object.ptr())) where = &reinterpret_cast<PyCFunctionObject*>(object.ptr())->m_ml;
  if (Py_IS_TYPE(object.ptr(), &PyMethodDescr_Type)) where = &reinterpret_cast<PyMethodDescrObject*>(object.ptr())->d_method;
  if (!where || ((*where)->ml_flags & METH_FASTCALL) || ((*where)->ml_flags & METH_NOARGS)) return false;
  for (size_t i = 0; i < used; i++)
    if (slots[i].where == where) return true;  // already under another name
  const size_t n = slot_for([&](const Slot& slot) { return slot.theirs == *where; });
  Slot& slot = slots[n];
  slot.where = where;
  if (slot.theirs) {
    *where = &slot.mine;
    return true;
  }
  slot.name = name;
  slot.bare = bare;
  slot.kind = name == "torch.Tensor.type";
  slot.theirs = *where;
  slot.mine = **where;
  slot.mine.ml_meth = slot.theirs->ml_flags & METH_O ? ones[n]
      : reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(calls[n]));
  Py_INCREF(object.ptr());  // its pointer must exist when it is restored
  *where = &slot.mine;
  return true;
}

// Redirects the constructor of a type and of types that inherited it.
inline void constructor(const std::string& name, py::handle object) {
  auto* type = reinterpret_cast<PyTypeObject*>(object.ptr());
  const size_t n = slot_for([&](const Slot& slot) { return slot.type == type; });
  if (type->tp_new == news[n]) return;
  slots[n].name = name;
  slots[n].type = type;
  slots[n].make = type->tp_new;
  type->tp_new = news[n];
  PyType_Modified(type);
}

// ------------------------------------------------------------------------------------------------------ torch.device

inline newfunc make_device = nullptr;
inline PyObject* new_device(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* made = make_device(type, args, kwargs);
  if (!made || !THPDevice_Check(made)) return made;
  const auto& device = reinterpret_cast<THPDevice*>(made)->device;
  if (device.type() != c10::DeviceType::CUDA) return made;
  PyObject* mine = THPDevice_New(Device(kSdaa, device.index()));
  Py_DECREF(made);
  slots[0].count++;
  return mine;
}

// ---------------------------------------------------------------------------------- a device for code outside of torch

struct Getter {  // an attribute of C, with its previous value
  PyGetSetDef mine{};
  PyGetSetDef* theirs = nullptr;
  PyGetSetDef** where = nullptr;
  void take(py::handle descriptor, getter get) {
    where = &reinterpret_cast<PyGetSetDescrObject*>(descriptor.ptr())->d_getset;
    theirs = *where;
    mine = *theirs;
    mine.get = get;
    *where = &mine;
  }
  void give_back() {
    if (where) *where = theirs;
    where = nullptr;
  }
};
inline Getter kind, is_cuda;

inline PyObject* get_kind(PyObject* self, void* closure) {
  if (reinterpret_cast<THPDevice*>(self)->device.type() == kSdaa && asked_from_outside()) {
    asked_kind++;
    return PyUnicode_FromString("cuda");
  }
  return kind.theirs->get(self, closure);
}
inline PyObject* get_is_cuda(PyObject* self, void* closure) {
  if (THPVariable_Check(self) && on_card(THPVariable_Unpack(self)) && asked_from_outside()) {
    asked_is_cuda++;
    Py_RETURN_TRUE;
  }
  return is_cuda.theirs->get(self, closure);
}

inline reprfunc text_of_device = nullptr;
inline PyObject* class_of_text = nullptr;  // compares equal to CUDA's text
inline PyObject* get_text(PyObject* self) {
  PyObject* text = text_of_device(self);
  if (!text || reinterpret_cast<THPDevice*>(self)->device.type() != kSdaa || !asked_from_outside()) return text;
  asked_text++;
  PyObject* wrapped = PyObject_CallOneArg(class_of_text, text);
  Py_DECREF(text);
  return wrapped;
}

// ----------------------------------------------------------------------------------------------------------- from Python

inline void begin(py::handle kind_of_device, py::handle is_cuda_of_tensor, py::handle text_class) {
  if (make_device) return;
  slots[0].name = "torch.device";
  used = std::max<size_t>(used, 1);
  for (auto& slot : slots) slot.count = 0;
  asked_kind = asked_is_cuda = asked_text = 0;
  make_device = THPDeviceType.tp_new;
  THPDeviceType.tp_new = new_device;
  class_of_text = text_class.inc_ref().ptr();
  text_of_device = THPDeviceType.tp_str;
  THPDeviceType.tp_str = get_text;
  PyType_Modified(&THPDeviceType);
  kind.take(kind_of_device, get_kind);
  is_cuda.take(is_cuda_of_tensor, get_is_cuda);
}

inline void end() {
  if (!make_device) return;
  for (size_t i = used; i-- > 1;) {
    Slot& slot = slots[i];
    if (slot.where) *slot.where = slot.theirs;
    slot.where = nullptr;
    if (slot.type) {
      slot.type->tp_new = slot.make;
      PyType_Modified(slot.type);
    }
  }
  THPDeviceType.tp_new = make_device;
  THPDeviceType.tp_str = text_of_device;
  Py_CLEAR(class_of_text);
  PyType_Modified(&THPDeviceType);
  make_device = nullptr;
  kind.give_back();
  is_cuda.give_back();
}

inline py::dict counts() {
  py::dict found;
  for (size_t i = 0; i < used; i++)
    if (slots[i].count) found[py::str(slots[i].name)] = slots[i].count;
  if (asked_kind) found["torch.device.type"] = asked_kind;
  if (asked_text) found["str(torch.device)"] = asked_text;
  if (asked_is_cuda) found["torch.Tensor.is_cuda"] = asked_is_cuda;
  return found;
}

}  // namespace sdaa::redirect

namespace sdaa {
inline void bind_redirect(py::module& m) {
  m.def("redirect_begin", &redirect::begin);
  m.def("redirect_end", &redirect::end);
  m.def("redirect_function", &redirect::function);
  m.def("redirect_constructor", &redirect::constructor);
  m.def("redirect_counts", &redirect::counts);
}
}  // namespace sdaa
