// sparsepath-infer: a network's answer to an input, from the command line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "npy.h"
#include "output.h"
#include "sparsepath_infer.h"

using namespace sparsepath::embedded;

namespace {

const char USAGE[] =
    "usage: sparsepath-infer NET.sparsepath INPUT.npy [OUTPUT.npy] [--threads N] [--repeat N]";
const char HELP[] =
    "Runs a saved network on float32 images and prints the largest classes of each.\n"
    "  OUTPUT.npy   keep all that the network gives here instead\n"
    "  --threads N  share the work among N threads (1)\n"
    "  --repeat N   run N times more and print the median latency\n";
constexpr size_t SHOWN = 5;

struct Arguments {
    std::vector<std::string> files;
    int threads = 1, repeat = 0;
    bool help = false;
};

int count_after(int argc, char **argv, int at) {
    char *end = nullptr;
    const long number = at + 1 < argc ? std::strtol(argv[at + 1], &end, 10) : 0;
    if (number < 1 || number > 1000000 || *end)
        throw BadInput(std::string(argv[at]) + " needs a number of at least 1.");
    return int(number);
}

Arguments arguments(int argc, char **argv) {
    Arguments given;
    for (int k = 1; k < argc; k++) {
        const std::string word = argv[k];
        if (word == "--threads")
            given.threads = count_after(argc, argv, k++);
        else if (word == "--repeat")
            given.repeat = count_after(argc, argv, k++);
        else if (word == "--help" || word == "-h")
            given.help = true;
        else if (word.size() > 1 && word[0] == '-')
            throw BadInput("'" + word + "' is unknown; " + USAGE);
        else
            given.files.push_back(word);
    }
    if (given.help) return given;
    if (given.files.size() < 2 || given.files.size() > 3) throw BadInput(USAGE);
    return given;
}

void check_single(const Network &network, const std::string &path) {
    if (network.inputs() != 1 || network.outputs() != 1)
        throw BadInput("'" + path + "' takes " + std::to_string(network.inputs()) + " and gives " +
                       std::to_string(network.outputs()) +
                       " tensors, and this program one of each; run it from C++ or Python.");
}

// The largest classes of every row, or what can be said of a tensor of another shape.
void print(const Tensor &y) {
    if (y.shape.size() != 2) {
        std::printf("shape");
        for (int64_t length : y.shape) std::printf(" %lld", static_cast<long long>(length));
        std::printf("; give OUTPUT.npy to keep it\n");
        return;
    }
    const size_t classes = size_t(y.shape[1]);
    for (int64_t n = 0; n < y.shape[0]; n++) {
        const float *row = y.data.data() + n * classes;
        std::vector<size_t> order(classes);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
        std::printf("image %lld:", static_cast<long long>(n));
        for (size_t k = 0; k < std::min(SHOWN, classes); k++)
            std::printf("  %zu (%.4g)", order[k], row[order[k]]);
        std::printf("\n");
    }
}

void measure(Network &network, const Tensor &x, int repeat) {
    using clock = std::chrono::steady_clock;
    std::vector<double> milliseconds;
    for (int k = 0; k < repeat; k++) {
        const auto began = clock::now();
        network.run(x);
        milliseconds.push_back(std::chrono::duration<double, std::milli>(clock::now() - began).count());
    }
    std::nth_element(milliseconds.begin(), milliseconds.begin() + repeat / 2, milliseconds.end());
    std::printf("median of %d runs: %.4f ms\n", repeat, milliseconds[repeat / 2]);
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const Arguments given = arguments(argc, argv);
        if (given.help) return std::printf("%s\n%s", USAGE, HELP) < 0;
        const bool kept = given.files.size() == 3;
        const std::string output =
            kept ? output_file(given.files[2], {given.files[0], given.files[1]}) : "";
        Options options;
        options.threads = given.threads;
        Network network = load(given.files[0], options);
        check_single(network, given.files[0]);
        const Tensor x = read_npy(given.files[1], options.limit);
        const Tensor y = network.run(x);
        if (kept)
            write_npy(output, y);
        else
            print(y);
        if (given.repeat) measure(network, x, given.repeat);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
