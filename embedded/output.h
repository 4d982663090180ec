// Files that are written whole or not at all, and over nothing but what a user means to replace.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace sparsepath::embedded {

// The regular file, there or yet to be, that a path stands for; none of `others`, which are read.
std::string output_file(const std::string &path, const std::vector<std::string> &others);

void write_whole(const std::string &path, std::initializer_list<std::string_view> parts);

}  // namespace sparsepath::embedded
