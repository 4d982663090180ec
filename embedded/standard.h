// The headers that most sources share; the build reads them once for all.
#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lanes.h"
