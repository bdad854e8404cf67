#pragma once

#include <cstdint>

#include "data/unicode.h"

namespace triax {

/// Characters from `first` to `last` and their classes.
struct NewerCharacters {
  uint32_t first, last;
  uint8_t classes;
};

/// Letters, digits and marks that Unicode 15.1 and 16 added, in order: utf8proc 2.8 knows those of 15.0, the
/// tokenizers package (0.23) those of 16. From the general categories (L, Nd, Mn and Mc) of Unicode 16.0's
/// UnicodeData.txt, as Python's unicodedata2 16.0 carries it, of all characters that utf8proc 2.8 calls
/// unassigned; the package's own \p{L}, \p{N} and \w agree for every character.
inline constexpr uint8_t newer_letter = class_letter | class_word, newer_digit = class_number | class_word,
                         newer_mark = class_word;
inline constexpr NewerCharacters newer_characters[] = {
    {0x897, 0x897, newer_mark},       {0x1C89, 0x1C8A, newer_letter},   {0xA7CB, 0xA7CD, newer_letter},
    {0xA7DA, 0xA7DC, newer_letter},   {0x105C0, 0x105F3, newer_letter}, {0x10D40, 0x10D49, newer_digit},
    {0x10D4A, 0x10D65, newer_letter}, {0x10D69, 0x10D6D, newer_mark},   {0x10D6F, 0x10D85, newer_letter},
    {0x10EC2, 0x10EC4, newer_letter}, {0x10EFC, 0x10EFC, newer_mark},   {0x11380, 0x11389, newer_letter},
    {0x1138B, 0x1138B, newer_letter}, {0x1138E, 0x1138E, newer_letter}, {0x11390, 0x113B5, newer_letter},
    {0x113B7, 0x113B7, newer_letter}, {0x113B8, 0x113C0, newer_mark},   {0x113C2, 0x113C2, newer_mark},
    {0x113C5, 0x113C5, newer_mark},   {0x113C7, 0x113CA, newer_mark},   {0x113CC, 0x113D0, newer_mark},
    {0x113D1, 0x113D1, newer_letter}, {0x113D2, 0x113D2, newer_mark},   {0x113D3, 0x113D3, newer_letter},
    {0x113E1, 0x113E2, newer_mark},   {0x116D0, 0x116E3, newer_digit},  {0x11BC0, 0x11BE0, newer_letter},
    {0x11BF0, 0x11BF9, newer_digit},  {0x11F5A, 0x11F5A, newer_mark},   {0x13460, 0x143FA, newer_letter},
    {0x16100, 0x1611D, newer_letter}, {0x1611E, 0x1612F, newer_mark},   {0x16130, 0x16139, newer_digit},
    {0x16D40, 0x16D6C, newer_letter}, {0x16D70, 0x16D79, newer_digit},  {0x18CFF, 0x18CFF, newer_letter},
    {0x1CCF0, 0x1CCF9, newer_digit},  {0x1E5D0, 0x1E5ED, newer_letter}, {0x1E5EE, 0x1E5EF, newer_mark},
    {0x1E5F0, 0x1E5F0, newer_letter}, {0x1E5F1, 0x1E5FA, newer_digit},  {0x2EBF0, 0x2EE5D, newer_letter}};

}  // namespace triax
