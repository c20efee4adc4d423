#include "pool.hpp"
namespace zerotail {
static int n_threads = 1;
Parallel pool() { return sequential(); }
void set_num_threads(int n) { n_threads = n; }
int get_num_threads() { return n_threads; }
}
