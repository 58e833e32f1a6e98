// Horizon and Completion: the policy and the waiter thread as the Python half sees them.
#include <pybind11/stl.h>

#include "bindings/cold.h"
#include "cpu/rung.h"
#include "wait/completion.h"
#include "wait/policy.h"

namespace py = pybind11;

namespace aiospin::bindings {

void register_waiting(py::module_& module) {
  py::class_<wait::Completion, std::shared_ptr<wait::Completion>>(
      module, "Completion", "Tokens from the waiter thread to one event loop, behind an eventfd.")
      .def(py::init<>())
      .def("fileno", &wait::Completion::fileno)
      .def("pop", &wait::Completion::pop);

  py::class_<wait::Horizon>(module, "Horizon", "How long waits watch before they park, learned from past ones.")
      .def(py::init([](double minimum_us, double maximum_us, double inline_us, double core_share, bool parks) {
             return wait::Horizon({minimum_us, maximum_us, inline_us, core_share, parks});
           }),
           py::kw_only(), py::arg("minimum_us"), py::arg("maximum_us"), py::arg("inline_us"), py::arg("core_share"),
           py::arg("parks"))
      .def("observe", &wait::Horizon::observe, py::arg("wait_us"), py::arg("rang") = false)
      .def("observe_park", &wait::Horizon::observe_park, py::arg("cost_us"))
      .def("spend", &wait::Horizon::spend, py::arg("watched_us"), py::arg("now_us"))
      .def("seat", &wait::Horizon::seat, py::arg("roles"))
      .def_property("cpus", &wait::Horizon::cpus, &wait::Horizon::set_cpus)
      .def("observe_run_delay", &wait::Horizon::observe_run_delay, py::arg("share"))
      .def("horizon_us", &wait::Horizon::horizon_us, py::arg("now_us"))
      .def_property_readonly("due", &wait::Horizon::due)
      .def_property_readonly("crowded", &wait::Horizon::crowded)
      .def_property_readonly("park_cost_us", &wait::Horizon::park_cost_us);

  module.def(
      "choose_rung",
      [](const std::string& name) {
        if (cpu::choose(name)) return;
        std::string known;
        for (const cpu::Rung* rung : cpu::rungs()) known += (known.empty() ? "" : ", ") + std::string(rung->name);
        throw py::value_error("'" + name + "' is not a rung of this build: " + known);
      },
      py::arg("name"), "Wait with that rung from now on; before the first wait.");
  module.def("rung", [] { return std::string(cpu::chosen().name); }, "The rung that this process waits with.");
}

}  // namespace aiospin::bindings
