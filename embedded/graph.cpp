// Reading the graph of a manifest.
#include "graph.h"

#include <cmath>

#include "operations.h"

namespace sparsepath::embedded {
namespace {

class Reader {
  public:
    explicit Reader(const Arrays &arrays) : arrays_(arrays) {}

    Graph graph(const Json &json) {
        std::vector<std::string> keys = {"inputs", "nodes", "output"};
        if (json.find("axes")) keys.push_back("axes");
        const auto found = fields(json, keys, "its graph");
        for (const std::string &name : names(*found[0])) define(name);
        graph_.inputs = numbers_.size();
        if (found.size() > 3) axes(*found[3]);
        if (!found[1]->is(Json::LIST)) throw BadInput("its graph has no nodes");
        for (const Json &node : found[1]->list) graph_.nodes.push_back(read(node));
        outputs(*found[2]);
        if (graph_.outputs.empty()) throw BadInput("its graph gives nothing");
        graph_.values = numbers_.size();
        return std::move(graph_);
    }

  private:
    const Arrays &arrays_;
    std::map<std::string, int> numbers_;
    Graph graph_;

    int define(const std::string &name) {
        const int number = static_cast<int>(numbers_.size());
        if (!numbers_.emplace(name, number).second)
            throw BadInput("its graph names " + shown(name) + " twice");
        return number;
    }

    void axes(const Json &json) {
        for (const Json &count : json.list)
            if (count.is(Json::INTEGER) && count.integer >= 0)
                graph_.axes.push_back(size_t(count.integer));
        if (graph_.axes.size() != graph_.inputs || json.list.size() != graph_.inputs)
            throw BadInput("its graph does not count the axes of each of its inputs");
    }

    int number_named(const std::string &name) const {
        const auto found = numbers_.find(name);
        if (found == numbers_.end())
            throw BadInput("its graph reads " + shown(name) + ", which nothing before gives");
        return found->second;
    }

    static std::vector<std::string> names(const Json &json) {
        std::vector<std::string> found;
        for (const Json &name : json.list) {
            if (!name.is(Json::TEXT)) throw BadInput("its graph has no sane names");
            found.push_back(name.text);
        }
        return found;
    }

    Node read(const Json &json) {
        const auto found =
            fields(json, {"name", "op", "inputs", "attributes", "arrays"}, "a node of its graph");
        Node node;
        node.name = found[0]->text;
        node.op = found[1]->text;
        for (const std::string &name : names(*found[2])) node.inputs.push_back(number_named(name));
        for (const auto &[key, name] : found[4]->members) {
            const auto array = arrays_.find(name.text);
            if (array == arrays_.end())
                throw BadInput(shown(node.name) + " uses the array " + shown(name.text) +
                               ", which is not there");
            node.arrays[key] = array->second;
        }
        Json own;
        for (const auto &[key, value] : found[3]->members) {
            if (key == "activation")
                node.ending.activation = value.text;
            else if (key == "pool" && value.list.size() == 2)
                node.ending.pool = integer_of(value.list[0], key),
                node.ending.ceil_mode = value.list[1].boolean;
            else
                own.members.emplace_back(key, value);
        }
        node.attributes = Attributes(own);
        check_arguments(node);
        node.value = define(node.name);
        return node;
    }

    // Every {"value": NAME} of a structure, in order.
    void outputs(const Json &json) {
        if (const Json *name = json.find("value"); name && json.members.size() == 1 && name->is(Json::TEXT))
            return graph_.outputs.push_back(number_named(name->text));
        for (const Json &part : json.list) outputs(part);
        for (const auto &[key, part] : json.members) outputs(part);
    }
};

[[noreturn]] void refuse(const std::string &what, const char *kind) {
    throw BadInput("its attribute " + shown(what) + " is no " + kind);
}

}  // namespace

int64_t integer_of(const Json &json, const std::string &what) {
    // Nothing sane is larger, and sums and products of such numbers do not overflow.
    if (!json.is(Json::INTEGER) || std::llabs(json.integer) > int64_t(1) << 40)
        refuse(what, "whole number");
    return json.integer;
}

double number_of(const Json &json, const std::string &what) {
    if (json.number()) return json.as_double();
    const Json *text = json.find("float");
    if (text && text->text == "inf") return INFINITY;
    if (text && text->text == "-inf") return -INFINITY;
    if (text && text->text == "nan") return NAN;
    refuse(what, "number");
}

const Json *Attributes::find(const std::string &key) const {
    const Json *found = object_.find(key);
    return found && !found->is(Json::NOTHING) ? found : nullptr;
}

int64_t Attributes::integer(const std::string &key) const {
    const Json *found = find(key);
    if (!found) refuse(key, "whole number");
    return integer_of(*found, key);
}

int64_t Attributes::integer(const std::string &key, int64_t otherwise) const {
    return find(key) ? integer(key) : otherwise;
}

std::vector<int64_t> Attributes::integers(const std::string &key) const {
    const Json *found = find(key);
    if (!found || !found->is(Json::LIST)) refuse(key, "list of whole numbers");
    std::vector<int64_t> numbers;
    for (const Json &number : found->list) numbers.push_back(integer_of(number, key));
    return numbers;
}

double Attributes::number(const std::string &key, double otherwise) const {
    const Json *found = find(key);
    return found ? number_of(*found, key) : otherwise;
}

bool Attributes::flag(const std::string &key, bool otherwise) const {
    const Json *found = find(key);
    if (found && !found->is(Json::BOOLEAN)) refuse(key, "truth value");
    return found ? found->boolean : otherwise;
}

std::string Attributes::text(const std::string &key, const std::string &otherwise) const {
    const Json *found = find(key);
    if (found && !found->is(Json::TEXT)) refuse(key, "text");
    return found ? found->text : otherwise;
}

const Tensor *Node::find(const std::string &key) const {
    const auto found = arrays.find(key);
    return found == arrays.end() ? nullptr : found->second.get();
}

Graph read_graph(const Json &json, const Arrays &arrays) { return Reader(arrays).graph(json); }

}  // namespace sparsepath::embedded
