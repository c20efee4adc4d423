// The threads of the NumPy front end: a small pool that survives fork and never waits for a busy one.
#pragma once

#include "parallel.hpp"

namespace zerotail {

Parallel pool();

// At least 1. The default is ZEROTAIL_NUM_THREADS, else OMP_NUM_THREADS, else the cores that this process may use.
void set_num_threads(int n);
int get_num_threads();

}  // namespace zerotail
