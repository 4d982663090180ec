// Every write goes to a neighbour that nobody else has, which then takes the name in one move.
#include "output.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "sparsepath_infer.h"

namespace sparsepath::embedded {
namespace {

namespace fs = std::filesystem;

// A new file in a folder: opened only if its name was free, whoever else looks for one.
std::FILE *opened_neighbour(const fs::path &folder, fs::path &name) {
    for (int k = 0; k < 10000; k++) {
        name = folder / (".sparsepath-infer-" + std::to_string(k) + ".part");
        std::FILE *file = std::fopen(name.c_str(), "wbx");
        if (file || errno != EEXIST) return file;
    }
    return nullptr;
}

}  // namespace

std::string output_file(const std::string &path, const std::vector<std::string> &others) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return path;
    if (!fs::is_regular_file(path, error))
        throw BadInput("'" + path + "' is there and is no regular file; choose another output.");
    for (const std::string &other : others)
        if (fs::equivalent(path, other, error))
            throw BadInput("The output '" + path + "' is the same file as '" + other +
                           "', which is read; choose another output.");
    const fs::path target = fs::canonical(path, error);  // a link stays, what it names is replaced
    return error ? path : target.string();
}

void write_whole(const std::string &path, std::initializer_list<std::string_view> parts) {
    fs::path neighbour;
    std::FILE *file = opened_neighbour(fs::path(path).parent_path(), neighbour);
    bool whole = file;
    for (const std::string_view part : parts)
        if (!part.empty()) whole = whole && std::fwrite(part.data(), 1, part.size(), file) == part.size();
    if (file) whole = std::fclose(file) == 0 && whole;
    if (whole && std::rename(neighbour.c_str(), path.c_str()) == 0) return;
    if (file) std::remove(neighbour.c_str());
    throw BadInput("'" + path + "' cannot be written; make room or choose another place.");
}

}  // namespace sparsepath::embedded
