// Mapping: a segment as the Python half sees it, word by word.
#include "bindings/cold.h"
#include "bindings/endpoint.h"
#include "platform/membarrier.h"

namespace py = pybind11;

namespace aiospin::bindings {

namespace {

class Mapping {
 public:
  Mapping(int fd, int ring_fd, std::uint32_t readers, std::uint64_t capacity)
      : segment_(std::make_shared<shm::Segment>(fd, ring_fd, readers, capacity)) {
    barrier_works = membarrier::enroll();
  }

  const std::shared_ptr<shm::Segment>& segment() const {
    if (segment_ == nullptr) throw py::value_error("the mapping is closed");
    return segment_;
  }

  std::uint64_t load(std::uint64_t offset) const {
    // sync:cold seq_cst: whatever a peer did before it stored the word.
    return word(offset).load(std::memory_order_seq_cst);
  }
  void store(std::uint64_t offset, std::uint64_t value) const {
    // sync:cold seq_cst: as a cursor, so that a ring that follows finds the word changed.
    word(offset).exchange(value, std::memory_order_seq_cst);
  }
  std::uint64_t add(std::uint64_t offset, std::uint64_t value) const {
    // sync:cold seq_cst: as above.
    return word(offset).fetch_add(value, std::memory_order_seq_cst);
  }
  bool barrier() const { return membarrier::everywhere(); }
  void close() { segment_ = nullptr; }

 private:
  Word& word(std::uint64_t offset) const {
    Word* found = segment()->word(offset);
    if (found == nullptr) throw py::value_error("no control word lies at offset " + std::to_string(offset));
    return *found;
  }

  std::shared_ptr<shm::Segment> segment_;
};

}  // namespace

std::shared_ptr<shm::Segment> segment_of(py::handle mapping) { return py::cast<const Mapping&>(mapping).segment(); }

void register_mapping(py::module_& module) {
  py::class_<Mapping>(module, "Mapping", "The mapping of one segment in this process.")
      .def(py::init<int, int, std::uint32_t, std::uint64_t>(), py::arg("fd"), py::arg("ring_fd"), py::arg("readers"),
           py::arg("capacity"))
      .def("load", &Mapping::load, py::arg("offset"))
      .def("store", &Mapping::store, py::arg("offset"), py::arg("value"))
      .def("add", &Mapping::add, py::arg("offset"), py::arg("value"))
      .def("barrier", &Mapping::barrier)
      .def("close", &Mapping::close);
}

}  // namespace aiospin::bindings
