"""The simulated OpenAI Chat provider and servers that speak its wire: rules, profiles, prompt layout, extra
endpoints.
"""
