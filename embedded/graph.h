// A graph of named operations in the order in which they run, every name and argument checked.
#pragma once
#include "artifact.h"

namespace sparsepath::embedded {

// The attributes of a node, read as what an operation expects.
class Attributes {
  public:
    Attributes() = default;
    explicit Attributes(const Json &object) : object_(object) {}

    const Json *find(const std::string &key) const;  // null where it is missing or null
    int64_t integer(const std::string &key) const;
    int64_t integer(const std::string &key, int64_t otherwise) const;
    std::vector<int64_t> integers(const std::string &key) const;
    double number(const std::string &key, double otherwise) const;
    bool flag(const std::string &key, bool otherwise) const;
    std::string text(const std::string &key, const std::string &otherwise) const;
    const std::vector<Json::Member> &all() const { return object_.members; }

  private:
    Json object_;
};

int64_t integer_of(const Json &json, const std::string &what);
double number_of(const Json &json, const std::string &what);

// What follows an operation: an activation by name, then a max pool of some side.
struct Ending {
    std::string activation;
    int64_t pool = 0;
    bool ceil_mode = false;
};

struct Node {
    std::string name, op;
    std::vector<int> inputs;  // values by number: the graph's inputs come first
    int value = 0;            // the number of its own
    Attributes attributes;
    Arrays arrays;
    Ending ending;

    const Tensor &array(const std::string &key) const { return *arrays.at(key); }
    const Tensor *find(const std::string &key) const;
};

struct Graph {
    size_t inputs = 0, values = 0;
    std::vector<size_t> axes;  // how many each input has, where the nodes depend on it
    std::vector<Node> nodes;
    std::vector<int> outputs;
};

Graph read_graph(const Json &json, const Arrays &arrays);

}  // namespace sparsepath::embedded
