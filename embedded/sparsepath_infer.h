// Runs a network that sparsepath saved, with nothing but the C++ standard library.
//
//     sparsepath::embedded::Network network = sparsepath::embedded::load("net.sparsepath");
//     sparsepath::embedded::Tensor y = network.run(x);
//
// Whatever is wrong with a file or an input is thrown as BadInput, one sentence, before anything runs.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sparsepath::embedded {

using Shape = std::vector<int64_t>;

struct Tensor {
    Shape shape;
    std::vector<float> data;  // row-major
};

struct Options {
    int threads = 1;
    // Bytes that the arrays of a file, and later the values of a run, may take: a few bytes of a file
    // can stand for any number of zeros.
    uint64_t limit = uint64_t(4) << 30;
};

class BadInput : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// A loaded network. It runs one input at a time; threads that run at once need a network each.
class Network {
  public:
    Tensor run(const Tensor &input);
    std::vector<Tensor> run(const std::vector<Tensor> &inputs);

    size_t inputs() const;
    size_t outputs() const;

    struct Parts;
    explicit Network(std::unique_ptr<Parts> parts);
    Network(Network &&) noexcept;
    Network &operator=(Network &&) noexcept;
    ~Network();

  private:
    Parts &parts() const;  // BadInput where they were moved to another network

    std::unique_ptr<Parts> parts_;
};

Network load(const std::string &path, const Options &options = {});

}  // namespace sparsepath::embedded
