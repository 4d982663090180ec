// Inflating: canonical Huffman codes read bit by bit, by how many codes of each length there are.
#include "inflate.h"

#include "sparsepath_infer.h"

namespace sparsepath::embedded {
namespace {

constexpr int LONGEST = 15;

[[noreturn]] void refuse(const char *why) {
    throw BadInput(std::string("its deflated bytes are damaged (") + why + ")");
}

class Bits {
  public:
    Bits(const uint8_t *at, size_t bytes) : at_(at), end_(at + bytes) {}

    uint32_t take(int count) {
        while (held_ < count) {
            if (at_ == end_) refuse("they end too early");
            bits_ |= uint32_t(*at_++) << held_;
            held_ += 8;
        }
        const uint32_t found = bits_ & ((uint32_t(1) << count) - 1);
        bits_ >>= count;
        held_ -= count;
        return found;
    }

    void to_byte() { bits_ = 0, held_ = 0; }  // never more than 7 bits are held between calls
    bool ended() const { return at_ == end_; }

  private:
    const uint8_t *at_, *end_;
    uint32_t bits_ = 0;
    int held_ = 0;
};

// A canonical Huffman code: symbols in the order of their codes, and how many there are of a length.
class Code {
  public:
    Code(const uint8_t *lengths, int symbols) : symbols_(size_t(symbols)) {
        for (int k = 0; k < symbols; k++) count_[lengths[k]]++;
        count_[0] = 0;
        int left = 1;  // codes of this length that are still free
        for (int length = 1; length <= LONGEST; length++) {
            left = 2 * left - count_[length];
            if (left < 0) refuse("a code has too many symbols");
        }
        complete_ = left == 0;
        int place[LONGEST + 2] = {};
        for (int length = 1; length <= LONGEST; length++)
            place[length + 1] = place[length] + count_[length];
        used_ = place[LONGEST + 1];
        for (int k = 0; k < symbols; k++)
            if (lengths[k]) symbols_[place[lengths[k]]++] = static_cast<uint16_t>(k);
    }

    // A code may lack symbols only where there is one, or none, to tell apart (zlib's rule).
    bool sane() const { return complete_ || (used_ <= 1 && used_ == count_[1]); }

    int symbol(Bits &bits) const {
        int code = 0, first = 0, place = 0;
        for (int length = 1; length <= LONGEST; length++) {
            code |= static_cast<int>(bits.take(1));
            if (code - first < count_[length]) return symbols_[place + code - first];
            place += count_[length];
            first = 2 * (first + count_[length]);
            code *= 2;
        }
        refuse("a code is unknown");
    }

  private:
    int count_[LONGEST + 1] = {};
    int used_ = 0;
    bool complete_ = false;
    std::vector<uint16_t> symbols_;
};

class Inflater {
  public:
    Inflater(const uint8_t *stream, size_t bytes, size_t size) : bits_(stream, bytes), size_(size) {}

    std::vector<uint8_t> all() {
        for (bool last = false; !last;) {
            last = bits_.take(1);
            switch (bits_.take(2)) {
            case 0: stored(); break;
            case 1: fixed(); break;
            case 2: dynamic(); break;
            default: refuse("a block is of no kind");
            }
        }
        if (out_.size() != size_ || !bits_.ended()) refuse("they give another number of bytes");
        return std::move(out_);
    }

  private:
    Bits bits_;
    size_t size_;
    std::vector<uint8_t> out_;

    void put(uint8_t byte) {
        if (out_.size() == size_) refuse("they give more than they should");
        out_.push_back(byte);
    }

    void stored() {
        bits_.to_byte();
        const uint32_t length = bits_.take(16), check = bits_.take(16);
        if (length != (~check & 0xffff)) refuse("a block has no length");
        for (uint32_t k = 0; k < length; k++) put(static_cast<uint8_t>(bits_.take(8)));
    }

    void fixed() {
        uint8_t lengths[288], distances[30];
        for (int k = 0; k < 288; k++) lengths[k] = k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : 8;
        for (uint8_t &length : distances) length = 5;
        block(Code(lengths, 288), Code(distances, 30));
    }

    void dynamic() {
        static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
        const int literals = bits_.take(5) + 257, distances = bits_.take(5) + 1;
        const int given = bits_.take(4) + 4;
        if (literals > 286 || distances > 30) refuse("a code has too many symbols");
        uint8_t lengths[320] = {};
        for (int k = 0; k < given; k++) lengths[order[k]] = static_cast<uint8_t>(bits_.take(3));
        const Code of_lengths(lengths, 19);
        if (!of_lengths.sane()) refuse("a code lacks symbols");
        for (int k = 0; k < literals + distances;) {
            const int symbol = of_lengths.symbol(bits_);
            if (symbol < 16) {
                lengths[k++] = static_cast<uint8_t>(symbol);
                continue;
            }
            if (symbol == 16 && k == 0) refuse("nothing is there to be repeated");
            const uint8_t length = symbol == 16 ? lengths[k - 1] : 0;
            int times = symbol == 16   ? 3 + bits_.take(2)
                        : symbol == 17 ? 3 + bits_.take(3)
                                       : 11 + bits_.take(7);
            if (k + times > literals + distances) refuse("a code has too many symbols");
            while (times--) lengths[k++] = length;
        }
        const Code literal(lengths, literals), distance(lengths + literals, distances);
        if (!lengths[256] || !literal.sane() || !distance.sane()) refuse("a code lacks symbols");
        block(literal, distance);
    }

    void block(const Code &literal, const Code &distance) {
        static const uint16_t length_base[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                 15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                 67, 83, 99, 115, 131, 163, 195, 227, 258};
        static const uint8_t length_more[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
        for (;;) {
            const int symbol = literal.symbol(bits_);
            if (symbol == 256) return;
            if (symbol < 256) {
                put(static_cast<uint8_t>(symbol));
                continue;
            }
            if (symbol > 285) refuse("a length is unknown");
            size_t length = length_base[symbol - 257] + bits_.take(length_more[symbol - 257]);
            const int far = distance.symbol(bits_);
            if (far > 29) refuse("a distance is unknown");
            const int more = far < 2 ? 0 : far / 2 - 1;
            const size_t back = (far < 2 ? far : (2 + (far & 1)) << more) + 1 + bits_.take(more);
            if (back > out_.size()) refuse("a distance leads before the beginning");
            while (length--) put(out_[out_.size() - back]);
        }
    }
};

}  // namespace

std::vector<uint8_t> inflated(const uint8_t *stream, size_t bytes, size_t size) {
    return Inflater(stream, bytes, size).all();
}

}  // namespace sparsepath::embedded
