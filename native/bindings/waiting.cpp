// Horizon and Completion: the policy and the waiter thread as the Python half sees them.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cold.h"
#include "cpu/features.h"
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
      .def(py::init([](double minimum_us, double maximum_us, double inline_us, double core_share, bool parks,
                       const std::optional<std::string>& rung) {
             const cpu::Rung* idle_with = rung.has_value() ? &cpu::usable(*rung) : nullptr;
             return wait::Horizon({minimum_us, maximum_us, inline_us, core_share, parks, idle_with});
           }),
           py::kw_only(), py::arg("minimum_us"), py::arg("maximum_us"), py::arg("inline_us"), py::arg("core_share"),
           py::arg("parks"), py::arg("rung") = py::none())
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
      "rungs",
      [] {
        std::vector<std::pair<std::string, std::optional<std::string>>> found;
        for (const auto& [rung, refusal] : cpu::verdicts()) {
          found.emplace_back(rung->name, refusal.empty() ? std::nullopt : std::optional(refusal));
        }
        return found;
      },
      "Every rung of this build, best first, with why it cannot be used here, or None.");
  module.def(
      "choose_rung", [](const std::string& name) { cpu::choose(cpu::usable(name)); }, py::arg("name"),
      "Wait with that rung from now on; before the first wait. ValueError says why it cannot be used.");
  module.def("rung", [] { return std::string(cpu::chosen().name); }, "The rung that this process waits with.");
  module.def(
      "cpu_features",
      [] {
        const cpu::Features& found = cpu::features();
        py::dict answer;
        answer["waitpkg"] = found.waitpkg;
        answer["monitorx"] = found.monitorx;
        answer["evtstrm"] = found.evtstrm;
        answer["wfxt"] = found.wfxt;
        answer["sb"] = found.sb;
        answer["invariant_counter"] = found.invariant;
        answer["hypervisor"] = found.hypervisor;
        answer["smallest_line"] = found.smallest_line;
        answer["largest_line"] = found.largest_line;
        return answer;
      },
      "What the CPU reports: flags, and the bytes that a monitor watches (0: not told).");
}

}  // namespace aiospin::bindings
