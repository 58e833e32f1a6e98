// The floors, as `aiospin bench` asks for them.
#include "floor/floor.h"

#include <pybind11/stl.h>

#include "bindings/cold.h"

namespace py = pybind11;

namespace aiospin::bindings {

void register_floor(py::module_& module) {
  py::class_<floor::Wakes>(module, "FloorWakes", "What sleeping in epoll at the end of a pipe costs, in nanoseconds.")
      .def_readonly("one_way", &floor::Wakes::one_way)
      .def_readonly("round_trip", &floor::Wakes::round_trip)
      .def_readonly("write_cost", &floor::Wakes::write_cost)
      .def_readonly("reader_cpu", &floor::Wakes::reader_cpu)
      .def_readonly("wall", &floor::Wakes::wall);
  using Released = py::call_guard<py::gil_scoped_release>;
  module.def("floor_bounce", &floor::bounce, py::arg("chunks"), py::arg("chunk"), Released());
  module.def("floor_wake", &floor::wake, py::arg("count"), py::arg("gap"), Released());
  module.def("floor_fan", &floor::fan, py::arg("readers"), py::arg("count"), py::arg("gap"), Released());
  module.def("floor_copy", &floor::copy, py::arg("count"), py::arg("nbytes"), py::arg("ring"), Released());
}

}  // namespace aiospin::bindings
