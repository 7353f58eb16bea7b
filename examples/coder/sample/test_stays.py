import unittest
from datetime import date

from stays import count_days, is_allowed


class StayTest(unittest.TestCase):
    def test_both_days_count(self) -> None:
        self.assertEqual(count_days(date(2026, 5, 1), date(2026, 5, 3)), 3)

    def test_longest_stay(self) -> None:
        self.assertTrue(is_allowed(date(2026, 5, 1), date(2026, 5, 28)))
        self.assertFalse(is_allowed(date(2026, 5, 1), date(2026, 5, 29)))


if __name__ == "__main__":
    unittest.main()
