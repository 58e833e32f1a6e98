// What pybind11 serves: construction, configuration, everything off the hot path.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "shm/segment.h"

namespace aiospin::bindings {

void register_floor(pybind11::module_& module);
void register_mapping(pybind11::module_& module);
void register_waiting(pybind11::module_& module);
void register_word(pybind11::module_& module);

// The segment behind a Mapping; raises ValueError when it is closed, TypeError when it is something else.
std::shared_ptr<shm::Segment> segment_of(pybind11::handle mapping);

}  // namespace aiospin::bindings
