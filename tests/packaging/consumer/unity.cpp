// Both translation units in one, as a unity build makes it.
#include "main.cpp"
#include "other.cpp"
