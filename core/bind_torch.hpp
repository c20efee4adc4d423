#pragma once

#include <nanobind/nanobind.h>

namespace zerotail { void bind_torch(nanobind::module_& module); }  // namespace zerotail
