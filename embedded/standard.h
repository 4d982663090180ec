// The headers that most sources share; the build reads them once, before all others.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lanes.h"
