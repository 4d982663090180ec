// The JSON reader: one pass, one character of look-ahead.
#include "json.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

#include "sparsepath_infer.h"

namespace sparsepath::embedded {
namespace {

constexpr int DEEPEST = 100;
constexpr size_t MOST_VALUES = 1 << 20;

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    Json whole() {
        Json value = any(0);
        space();
        if (at_ != text_.size()) refuse("something follows it");
        return value;
    }

  private:
    std::string_view text_;
    size_t at_ = 0, values_ = 0;

    [[noreturn]] void refuse(const std::string &why) const {
        throw BadInput("its JSON is wrong at byte " + std::to_string(at_) + ": " + why);
    }

    char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool take(char c) { return next() == c && at_ < text_.size() ? (at_++, true) : false; }
    void space() {
        while (at_ < text_.size() && (next() == ' ' || next() == '\n' || next() == '\r' || next() == '\t'))
            at_++;
    }
    bool word(std::string_view wanted) {
        if (text_.substr(at_, wanted.size()) != wanted) return false;
        at_ += wanted.size();
        return true;
    }

    Json any(int depth) {
        if (depth > DEEPEST) refuse("it is nested too deeply");
        if (++values_ > MOST_VALUES) refuse("it has too many values");
        space();
        Json value;
        if (next() == '{') {
            value.kind = Json::OBJECT;
            members(value, depth);
        } else if (next() == '[') {
            value.kind = Json::LIST;
            elements(value, depth);
        } else if (next() == '"') {
            value.kind = Json::TEXT;
            value.text = text();
        } else if (word("true") || word("false")) {
            value.kind = Json::BOOLEAN;
            value.boolean = text_[at_ - 2] == 'u';
        } else if (!word("null")) {
            number(value);
        }
        return value;
    }

    void members(Json &value, int depth) {
        std::unordered_set<std::string> keys;
        at_++;
        space();
        if (take('}')) return;
        do {
            space();
            if (next() != '"') refuse("a key is missing");
            std::string key = text();
            if (!keys.insert(key).second) refuse("it has the key " + shown(key) + " twice");
            space();
            if (!take(':')) refuse("a colon is missing");
            value.members.emplace_back(std::move(key), any(depth + 1));
            space();
        } while (take(','));
        if (!take('}')) refuse("an object does not end");
    }

    void elements(Json &value, int depth) {
        at_++;
        space();
        if (take(']')) return;
        do {
            value.list.push_back(any(depth + 1));
            space();
        } while (take(','));
        if (!take(']')) refuse("a list does not end");
    }

    void number(Json &value) {
        const size_t begin = at_;
        const auto digits = [&] {
            const size_t first = at_;
            while (next() >= '0' && next() <= '9') at_++;
            if (at_ == first) refuse("this is no value");
        };
        take('-');
        if (!take('0')) digits();
        const size_t whole = at_;
        if (take('.')) digits();
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            digits();
        }
        const std::string found(text_.substr(begin, at_ - begin));
        const bool is_whole = at_ == whole && found.size() < 19;  // longer ones may not fit
        value.kind = is_whole ? Json::INTEGER : Json::REAL;
        if (is_whole)
            value.integer = std::strtoll(found.c_str(), nullptr, 10);
        else
            value.real = std::strtod(found.c_str(), nullptr);
    }

    std::string text() {
        std::string found;
        at_++;
        while (!take('"')) {
            if (at_ >= text_.size()) refuse("a text does not end");
            const unsigned char c = static_cast<unsigned char>(text_[at_++]);
            if (c < 0x20) refuse("a text holds a control character");
            if (c == '\\')
                escape(found);
            else
                found.push_back(static_cast<char>(c));
        }
        return found;
    }

    void escape(std::string &found) {
        static const std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        const char c = next();
        at_++;
        if (const size_t place = letters.find(c); c && place != letters.npos)
            return found.push_back(meant[place]);
        if (c != 'u') refuse("a text has an unknown escape");
        uint32_t code = hexadecimal();
        if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
            if (!take('\\') || !take('u')) refuse("a text has half a character");
            const uint32_t second = hexadecimal();
            if (second < 0xdc00 || second > 0xdfff) refuse("a text has half a character");
            code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
        } else if (code >= 0xdc00 && code < 0xe000) {
            refuse("a text has half a character");
        }
        append(found, code);
    }

    uint32_t hexadecimal() {
        uint32_t code = 0;
        for (int k = 0; k < 4; k++, at_++) {
            const char c = next();
            if (c >= '0' && c <= '9')
                code = code * 16 + (c - '0');
            else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
                code = code * 16 + ((c | 32) - 'a' + 10);
            else
                refuse("a text has an unknown escape");
        }
        return code;
    }

    static void append(std::string &found, uint32_t code) {  // as UTF-8
        if (code < 0x80) return found.push_back(static_cast<char>(code));
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
        found.push_back(static_cast<char>(lead[more] | code >> (6 * more)));
        for (int k = more - 1; k >= 0; k--)
            found.push_back(static_cast<char>(0x80 | (code >> (6 * k) & 0x3f)));
    }
};

}  // namespace

Json Json::parse(std::string_view text) { return Reader(text).whole(); }

const Json *Json::find(std::string_view key) const {
    for (const Member &member : members)
        if (member.first == key) return &member.second;
    return nullptr;
}

std::vector<const Json *> fields(const Json &object, const std::vector<std::string> &keys,
                                 const std::string &what) {
    std::vector<const Json *> found;
    for (const std::string &key : keys) found.push_back(object.find(key));
    const bool all = std::find(found.begin(), found.end(), nullptr) == found.end();
    if (all && object.members.size() == keys.size()) return found;
    std::string names;
    for (const std::string &key : keys) names += (names.empty() ? "" : ", ") + key;
    throw BadInput(what + " should have exactly the keys " + names);
}

std::string shown(std::string_view text) {
    std::string text_shown = "'";
    for (char c : text.substr(0, 60)) text_shown += c >= ' ' && c <= '~' ? c : '?';
    return text_shown + (text.size() > 60 ? "...'" : "'");
}

}  // namespace sparsepath::embedded
