// Shows the parts that the embedded program has of its own, for tests to hold against Python's.
//
//     parts sha256|json|inflate|moved FILE [SIZE]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "inflate.h"
#include "json.h"
#include "sha256.h"
#include "sparsepath_infer.h"

using namespace sparsepath::embedded;

// A value again, in one way only: texts and keys as their UTF-8 bytes in hexadecimal.
static void show(const Json &json) {
    const auto hexadecimal = [](const std::string &text) {
        std::printf("\"");
        for (unsigned char c : text) std::printf("%02x", c);
        std::printf("\"");
    };
    const char *before = "";
    switch (json.kind) {
    case Json::NOTHING: std::printf("null"); break;
    case Json::BOOLEAN: std::printf(json.boolean ? "true" : "false"); break;
    case Json::INTEGER: std::printf("%lld", static_cast<long long>(json.integer)); break;
    case Json::REAL: std::printf("%.17g", json.real); break;
    case Json::TEXT: hexadecimal(json.text); break;
    case Json::LIST:
        std::printf("[");
        for (const Json &part : json.list) std::printf("%s", before), show(part), before = ",";
        std::printf("]");
        break;
    case Json::OBJECT:
        std::printf("{");
        for (const auto &[key, part] : json.members)
            std::printf("%s", before), hexadecimal(key), std::printf(":"), show(part), before = ",";
        std::printf("}");
    }
}

// What each use of a network says after another took it over.
static void show_moved(const std::string &path) {
    Network network = load(path);
    const Network other = std::move(network);
    const auto say = [](auto &&use) {
        try {
            use();
            std::printf("nothing\n");
        } catch (const BadInput &error) {
            std::printf("%s\n", error.what());
        }
    };
    say([&] { network.inputs(); });
    say([&] { network.outputs(); });
    say([&] { network.run(Tensor{}); });
    say([&] { network.run(std::vector<Tensor>{}); });
    std::printf("%zu %zu\n", other.inputs(), other.outputs());
}

int main(int argc, char **argv) {
    const std::string what = argv[1];
    std::ifstream file(argv[2], std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    try {
        if (what == "sha256") std::printf("%s", sha256(content.data(), content.size()).c_str());
        if (what == "json") show(Json::parse(content));
        if (what == "moved") show_moved(argv[2]);
        if (what == "inflate" && argc == 4) {
            const auto *stream = reinterpret_cast<const uint8_t *>(content.data());
            const auto bytes = inflated(stream, content.size(), std::strtoull(argv[3], nullptr, 10));
            std::printf("%s", sha256(bytes.data(), bytes.size()).c_str());
        }
        return 0;
    } catch (const BadInput &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
