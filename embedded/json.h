// JSON as RFC 8259 has it, read into memory; nesting and size are bounded, a key comes once.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsepath::embedded {

class Json {
  public:
    enum Kind { NOTHING, BOOLEAN, INTEGER, REAL, TEXT, LIST, OBJECT };
    using Member = std::pair<std::string, Json>;

    static Json parse(std::string_view text);

    Kind kind = NOTHING;
    bool boolean = false;
    int64_t integer = 0;
    double real = 0;
    std::string text;
    std::vector<Json> list;
    std::vector<Member> members;  // in the order of the file

    bool is(Kind other) const { return kind == other; }
    bool number() const { return kind == INTEGER || kind == REAL; }
    double as_double() const { return kind == INTEGER ? static_cast<double>(integer) : real; }
    const Json *find(std::string_view key) const;  // null where an object lacks it
};

// The values of an object that has exactly these keys, in their order; `what` names it if not.
std::vector<const Json *> fields(const Json &object, const std::vector<std::string> &keys,
                                 const std::string &what);

// A name of a file as a sentence may quote it: short and printable.
std::string shown(std::string_view text);

}  // namespace sparsepath::embedded
