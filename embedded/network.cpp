// A network: its graph, run node by node, each value given back after its last reader.
#include "fold.h"
#include "operations.h"

namespace sparsepath::embedded {

struct Network::Parts {
    Graph graph;
    Machine machine;
    std::vector<int> last;  // for each value the last node that reads it

    Parts(Graph given, const Options &options)
        : graph(std::move(given)), machine(options), last(graph.values, -1) {
        for (size_t k = 0; k < graph.nodes.size(); k++)
            for (int value : graph.nodes[k].inputs) last[value] = int(k);
        for (int value : graph.outputs) last[value] = int(graph.nodes.size());
    }

    Value entered(const Tensor &tensor) {
        if (elements(tensor.shape) != tensor.data.size())
            throw BadInput("An input has another number of values than its shape says.");
        Value value = machine.fresh(tensor.shape);
        std::copy(tensor.data.begin(), tensor.data.end(), value.plain.get());
        return value;
    }

    Tensor left(Value &value) {
        const float *data = machine.plain(value);
        return {value.shape, {data, data + value.count()}};
    }
};

Network::Network(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Network::Network(Network &&) noexcept = default;
Network &Network::operator=(Network &&) noexcept = default;
Network::~Network() = default;

Network::Parts &Network::parts() const {
    if (!parts_) throw BadInput("This network was moved to another one; run that, or load the file again.");
    return *parts_;
}

size_t Network::inputs() const { return parts().graph.inputs; }
size_t Network::outputs() const { return parts().graph.outputs.size(); }

Tensor Network::run(const Tensor &input) {
    if (outputs() != 1)
        throw BadInput("The network gives " + std::to_string(outputs()) +
                       " tensors: run it with a list of inputs.");
    return run(std::vector<Tensor>{input})[0];
}

std::vector<Tensor> Network::run(const std::vector<Tensor> &inputs) {
    Parts &own = parts();
    const Graph &graph = own.graph;
    Machine &machine = own.machine;
    if (inputs.size() != graph.inputs)
        throw BadInput("The network takes " + std::to_string(graph.inputs) + " inputs, not " +
                       std::to_string(inputs.size()) + ".");
    for (size_t k = 0; k < graph.axes.size(); k++)
        if (inputs[k].shape.size() != graph.axes[k])
            throw BadInput("The network was made for an input of " + std::to_string(graph.axes[k]) +
                           " axes, not of " + std::to_string(inputs[k].shape.size()) + ".");
    std::vector<Value> values(graph.values);
    for (size_t k = 0; k < inputs.size(); k++) values[k] = own.entered(inputs[k]);
    machine.prepare(inputs.empty() || inputs[0].shape.empty() ? 1 : inputs[0].shape[0]);
    for (size_t k = 0; k < graph.nodes.size(); k++) {
        const Node &node = graph.nodes[k];
        Inputs read;
        for (int value : node.inputs) read.push_back(&values[value]);
        try {
            values[node.value] = run_node(machine, node, read);
        } catch (const BadInput &error) {
            throw BadInput("The network cannot take this input: at " + shown(node.name) + " (" + node.op +
                           ") " + error.what() + ".");
        }
        for (int value : node.inputs)
            if (own.last[value] == int(k)) values[value] = Value();
    }
    std::vector<Tensor> given;
    for (int value : graph.outputs) given.push_back(own.left(values[value]));
    return given;
}

Network load(const std::string &path, const Options &options) {
    if (options.threads < 1 || options.threads > 1024)
        throw BadInput("threads must be 1 to 1024, not " + std::to_string(options.threads) + ".");
    Graph graph;
    try {
        const Artifact artifact = read_artifact(path, options.limit);
        graph = read_graph(artifact.graph, artifact.arrays);
        fold(graph);
    } catch (const std::exception &error) {
        throw BadInput("'" + path + "' is damaged or not ours: " + error.what() + "; nothing was loaded.");
    }
    return Network(std::make_unique<Network::Parts>(std::move(graph), options));
}

}  // namespace sparsepath::embedded
