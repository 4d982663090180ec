// Checking an artifact: format, version, checksums, then array by array.
#include "artifact.h"

#include "safetensors.h"
#include "sha256.h"
#include "unpack.h"

namespace sparsepath::embedded {
namespace {

constexpr int NEWEST = 3;
const std::string FORMAT = "sparsepath artifact ";

int version_of(const std::string &format) {
    if (format.compare(0, FORMAT.size(), FORMAT) != 0)
        throw BadInput("its format is " + shown(format) + ", not " + shown(FORMAT + "1"));
    const std::string version = format.substr(FORMAT.size());
    if (version.size() == 1 && version[0] >= '1' && version[0] <= '0' + NEWEST) return version[0] - '0';
    throw BadInput("it has version " + shown(version) + " of the format and this program reads 1 to " +
                   std::to_string(NEWEST) + ": build a newer program");
}

int64_t length(const Json &json, const std::string &name) {
    if (!json.is(Json::INTEGER) || json.integer < 0 || json.integer >= int64_t(1) << 40)
        throw BadInput(shown(name) + " has no sane shape");
    return json.integer;
}

Entry read_entry(const std::string &name, const Json &json, int version) {
    std::vector<std::string> keys{"shape", "dtype", "how", "block"};
    if (version > 1) keys.insert(keys.end(), {"code", "deflated"});
    if (version > 2) keys.push_back("axis");
    const auto found = fields(json, keys, shown(name));
    Entry entry;
    if (!found[0]->is(Json::LIST)) throw BadInput(shown(name) + " has no sane shape");
    for (const Json &axis : found[0]->list) entry.shape.push_back(length(axis, name));
    entry.type = type_named(found[1]->text);
    entry.how = found[2]->text;
    entry.block = length(*found[3], name);
    entry.code = version > 1 ? found[4]->text : "plain";
    if (version > 1)
        for (const auto &[kind, size] : found[5]->members) entry.deflated[kind] = length(size, name);
    if (version > 2) entry.axis = length(*found[6], name);
    if (!entry.type || !known_way(entry))
        throw BadInput(shown(name) + " is stored as " + shown(found[1]->text) + " by " + shown(entry.how) +
                       " and " + shown(entry.code) + ", which is unknown");
    return entry;
}

void check_sums(const Safetensors &file, const Json &sums) {
    if (sums.members.size() != file.tensors.size())
        throw BadInput("its tensors are not those of its manifest");
    for (const auto &[name, sum] : sums.members) {
        const auto found = file.tensors.find(name);
        if (found == file.tensors.end()) throw BadInput("its tensors are not those of its manifest");
        if (sha256(found->second.data, found->second.bytes) != sum.text)
            throw BadInput("the checksum of " + shown(name) + " is wrong");
    }
}

// What all arrays and masks would take in memory.
void check_size(const std::map<std::string, Entry> &entries, uint64_t limit) {
    uint64_t size = 0;
    for (const auto &[name, entry] : entries) {
        size += elements(entry.shape) * std::max(entry.type->bytes, int(sizeof(float)));
        if (size > limit)
            throw BadInput("its arrays would take more than " + std::to_string(limit) + " bytes of memory");
    }
}

}  // namespace

Artifact read_artifact(const std::string &path, uint64_t limit) {
    const Safetensors file = read_safetensors(path, limit);
    const auto text = [&](const char *key) {
        const auto found = file.texts.find(key);
        return found == file.texts.end() ? std::string() : found->second;
    };
    const int version = version_of(text("format"));
    const std::string manifest = text("manifest");
    if (sha256(manifest.data(), manifest.size()) != text("sha256"))
        throw BadInput("the checksum of its manifest is wrong");
    const Json content = Json::parse(manifest);
    const auto found =
        fields(content, {"versions", "graph", "factory", "arrays", "support", "figures", "checksums"},
               "its manifest");
    const Json &graph = *found[1], &factory = *found[2];
    if (graph.is(Json::NOTHING))
        throw BadInput("it holds no graph but the name of a factory, " + shown(factory.text) +
                       ", which only Python has: save the network without factory=");
    std::map<std::string, Entry> entries, masks;
    for (const auto &[name, json] : found[3]->members) entries[name] = read_entry(name, json, version);
    for (const auto &[name, json] : found[4]->members) masks[name] = read_entry(name, json, version);
    check_size(entries, limit);
    check_size(masks, limit);
    check_sums(file, *found[6]);
    Artifact artifact;
    for (const auto &[name, entry] : entries) {
        Parts parts;
        for (const char *kind : {"values", "where", "scales", "codebook"}) {
            const auto part = file.tensors.find(kind + (":" + name));
            if (part != file.tensors.end()) parts.emplace(kind, part->second);
        }
        try {
            artifact.arrays[name] = std::make_shared<Tensor>(unpacked(entry, parts));
        } catch (const BadInput &error) {
            throw BadInput(shown(name) + ": " + error.what());
        }
    }
    artifact.graph = graph;
    return artifact;
}

}  // namespace sparsepath::embedded
